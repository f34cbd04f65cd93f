// Command facts prints what Bursar must know about the built-in kinds: for every field its JSON name, type, protobuf
// number, whether it is optional, how it merges, its default. The output is crates/kinds/data/facts.txt; the reader in
// crates/kinds/src/facts.rs says what each word of a line means.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"

	"bursar.test/parts/internal/served"
)

// Types whose JSON is not what their Go fields suggest.
var special = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):                            "Quantity",
	reflect.TypeOf(metav1.Time{}):                                  "Time",
	reflect.TypeOf(metav1.MicroTime{}):                             "MicroTime",
	reflect.TypeOf(metav1.Duration{}):                              "Duration",
	reflect.TypeOf(intstr.IntOrString{}):                           "IntOrString",
	reflect.TypeOf(metav1.FieldsV1{}):                              "Raw",
	reflect.TypeOf(runtime.RawExtension{}):                         "Raw",
	reflect.TypeOf(apiextensionsv1.JSON{}):                         "Raw",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrBool{}):        "SchemaOrBool",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrArray{}):       "SchemaOrArray",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrStringArray{}): "SchemaOrStrings",
}

var definitions = openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })

type walker struct {
	types map[string]reflect.Type
	queue []reflect.Type
}

func main() {
	log.SetFlags(0)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "# Facts about the built-in kinds, written by tests/parts/cmd/facts. Do not edit.")
	walk := walker{types: map[string]reflect.Type{}}
	for _, kind := range served.Kinds() {
		group := kind.Group
		if group == "" {
			group = "-"
		}
		fmt.Fprintln(out, "kind", group, kind.Version, kind.Kind, walk.name(kind.Type))
	}
	for len(walk.queue) > 0 {
		next := walk.queue[0]
		walk.queue = walk.queue[1:]
		walk.object(next, nil)
	}
	names := make([]string, 0, len(walk.types))
	for name := range walk.types {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		line := "type " + name
		if definition, ok := definitions[long(name)]; ok && extension(definition.Schema, "x-kubernetes-map-type") == "atomic" {
			line += " atomic"
		}
		fmt.Fprintln(out, line)
		walk.object(walk.types[name], func(line string) { fmt.Fprintln(out, line) })
	}
}

// short keeps the file small: the two long prefixes nearly all types share become one character.
func short(name string) string {
	name = strings.Replace(name, "io.k8s.apimachinery.pkg.apis.meta.", "~", 1)
	return strings.Replace(name, "io.k8s.api.", "^", 1)
}

func long(name string) string {
	name = strings.Replace(name, "~", "io.k8s.apimachinery.pkg.apis.meta.", 1)
	return strings.Replace(name, "^", "io.k8s.api.", 1)
}

// name gives the published name of a struct type and remembers to describe it.
func (w *walker) name(typ reflect.Type) string {
	named, ok := reflect.New(typ).Interface().(interface{ OpenAPIModelName() string })
	if !ok {
		log.Fatalf("%v has no published name", typ)
	}
	name := short(named.OpenAPIModelName())
	if _, known := w.types[name]; !known {
		w.types[name] = typ
		w.queue = append(w.queue, typ)
	}
	return name
}

func (w *walker) object(typ reflect.Type, print func(string)) {
	if print == nil {
		print = func(string) {}
	}
	var definition spec.Schema
	if found, ok := definitions[long(w.name(typ))]; ok {
		definition = found.Schema
	} else {
		log.Fatalf("%v has no OpenAPI definition", typ)
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		if !field.IsExported() {
			continue
		}
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		number := "0"
		if wire := strings.Split(field.Tag.Get("protobuf"), ","); len(wire) > 1 {
			number = wire[1]
		}
		if tag == "" {
			if !field.Anonymous && !strings.Contains(options, "inline") {
				log.Fatalf("%v.%s has no JSON name", typ, field.Name)
			}
			print(" inline " + w.name(field.Type) + " " + number)
			continue
		}
		print(" " + tag + " " + w.typeOf(field.Type) + " " + number + w.facts(field.Type, tag, options, definition))
	}
}

// typeOf writes a type in the file's notation: * pointer, [] list, [w] list wrapped in a message, {} map.
func (w *walker) typeOf(typ reflect.Type) string {
	if name, ok := special[typ]; ok {
		return name
	}
	scalar := func(word string) string {
		if typ.PkgPath() == "" {
			return word
		}
		return word + ":" + typ.String()
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return "*" + w.typeOf(typ.Elem())
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if _, wrapped := reflect.PointerTo(typ).MethodByName("Unmarshal"); wrapped {
			return "[w]" + w.typeOf(typ.Elem())
		}
		return "[]" + w.typeOf(typ.Elem())
	case reflect.Map:
		if typ.Key().Kind() != reflect.String {
			log.Fatalf("%v: only string keys are expected", typ)
		}
		return "{}" + w.typeOf(typ.Elem())
	case reflect.Struct:
		return w.name(typ)
	case reflect.String:
		return scalar("string")
	case reflect.Bool:
		return scalar("bool")
	case reflect.Int32:
		return scalar("int32")
	case reflect.Int64, reflect.Int:
		return scalar("int64")
	case reflect.Float64:
		return scalar("double")
	}
	log.Fatalf("%v: no word for this type", typ)
	return ""
}

func (w *walker) facts(typ reflect.Type, name, options string, definition spec.Schema) string {
	var words []string
	omitEmpty, omitZero := strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero")
	// encoding/json never takes a struct for empty; only omitzero drops one.
	if omitZero || omitEmpty && typ.Kind() != reflect.Struct {
		words = append(words, "?")
	}
	for _, required := range definition.Required {
		if required == name {
			words = append(words, "!")
		}
	}
	property, ok := definition.Properties[name]
	if !ok {
		log.Fatalf("%s: the OpenAPI definition lacks it", name)
	}
	switch extension(property, "x-kubernetes-list-type") {
	case "set":
		words = append(words, "list=set")
	case "map":
		keys := property.Extensions["x-kubernetes-list-map-keys"].([]any)
		var names []string
		for _, key := range keys {
			names = append(names, key.(string))
		}
		words = append(words, "list=map:"+strings.Join(names, ","))
	}
	// A struct is granular unless its type says otherwise; a field that says so again speaks against its type.
	if merge := extension(property, "x-kubernetes-map-type"); merge == "atomic" || merge == "granular" && len(property.AllOf)+len(property.Ref.String()) > 0 {
		words = append(words, "map="+merge)
	}
	if kind := typ.Kind(); (kind == reflect.Map || kind == reflect.Slice) && typ.PkgPath() != "" {
		words = append(words, "go="+typ.String())
	}
	if strategy := extension(property, "x-kubernetes-patch-strategy"); strategy != "" {
		words = append(words, "patch="+strategy)
	}
	if key := extension(property, "x-kubernetes-patch-merge-key"); key != "" {
		words = append(words, "key="+key)
	}
	if word := defaultOf(property.Default); word != "" {
		words = append(words, "default="+word)
	}
	if len(property.Enum) > 0 {
		words = append(words, "enum="+enumOf(property.Enum))
	} else if property.Items != nil && property.Items.Schema != nil && len(property.Items.Schema.Enum) > 0 {
		words = append(words, "items="+enumOf(property.Items.Schema.Enum))
	}
	if len(words) == 0 {
		return ""
	}
	return " " + strings.Join(words, " ")
}

func enumOf(values []any) string {
	var words []string
	for _, value := range values {
		words = append(words, fmt.Sprint(value))
	}
	return strings.Join(words, ",")
}

func defaultOf(value any) string {
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	if string(text) == "{}" {
		return ""
	}
	if strings.Contains(string(text), " ") {
		log.Fatalf("default %s: the notation has no spaces", text)
	}
	return string(text)
}

func extension(schema spec.Schema, name string) string {
	text, _ := schema.Extensions[name].(string)
	return text
}
