// Command roundtrip fills every served kind at random and writes each object twice, as JSON and as protobuf, one line each:
//
//	apiVersion kind protobuf-in-base64 json
//
// Reading both must give the same tree. The seed and the number of objects of each kind are its arguments. With a third,
// "tame", the objects are such that a server can store them, and the two forms have different names (tame.go).
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"bursar.test/parts/internal/served"
)

// Spellings of quantities, among them those that Kubernetes rewrites.
var quantities = []string{"0", "1", "100m", "1500m", "0.5", "1Gi", "1.5Gi", "1e3", "12E", "1M", "1000", "-3", "100n", "1.500", "01"}

var raws = []string{`{}`, `{"a":1,"b":[null,true,"x",1.5]}`, `"text"`, `[1,2]`, `false`, `{"f:metadata":{"f:name":{}}}`}

var floats = []float64{0, 1, -1, 0.5, 3.25, 1e15, 1e18, 1e19, 1e21, 1e-7}

func main() {
	log.SetFlags(0)
	seed, rounds := argument(1, 1), argument(2, 3)
	filler := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(1, 2).MaxDepth(14).Funcs(
		// Protobuf has the kind in the envelope and no place for that of an inner object.
		func(*metav1.TypeMeta, randfill.Continue) {},
		// A list in a map that is nil in one form is empty in the other.
		func(v *authenticationv1.ExtraValue, c randfill.Continue) { *v = []string{c.String(8)} },
		func(v *authorizationv1.ExtraValue, c randfill.Continue) { *v = []string{c.String(8)} },
		func(q *resource.Quantity, c randfill.Continue) { *q = resource.MustParse(pick(quantities, c)) },
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Time{Time: moment(c)} },
		func(t *metav1.MicroTime, c randfill.Continue) { *t = metav1.MicroTime{Time: moment(c)} },
		func(v *intstr.IntOrString, c randfill.Continue) {
			if c.Bool() {
				*v = intstr.FromInt32(c.Int31())
			} else {
				*v = intstr.FromString(c.String(8))
			}
		},
		func(v *metav1.FieldsV1, c randfill.Continue) { v.SetRawString(pick(raws, c)) },
		func(v *runtime.RawExtension, c randfill.Continue) { v.Raw = []byte(pick(raws, c)) },
		func(v *apiextensionsv1.JSON, c randfill.Continue) { v.Raw = []byte(pick(raws, c)) },
		func(v *float64, c randfill.Continue) { *v = pick(floats, c) },
		func(v *apiextensionsv1.JSONSchemaPropsOrBool, c randfill.Continue) {
			v.Allows = c.Bool()
			if c.Bool() {
				v.Allows, v.Schema = true, schema(c)
			}
		},
		func(v *apiextensionsv1.JSONSchemaPropsOrArray, c randfill.Continue) {
			if c.Bool() {
				v.Schema = schema(c)
			} else {
				v.JSONSchemas = []apiextensionsv1.JSONSchemaProps{*schema(c), *schema(c)}
			}
		},
		func(v *apiextensionsv1.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			if c.Bool() {
				v.Schema = schema(c)
			} else {
				v.Property = []string{c.String(8)}
			}
		},
	)

	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	serializer := protobuf.NewSerializer(nil, nil)
	tamed := len(os.Args) > 3 && os.Args[3] == "tame"
	for round := range rounds {
		for at, kind := range served.Kinds() {
			object, ok := reflect.New(kind.Type).Interface().(runtime.Object)
			if !ok {
				log.Fatalf("%v is not an object", kind)
			}
			filler.Fill(object)
			object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
			if tamed {
				tame(object, seed*rounds+round)
				name(object, fmt.Sprintf("wire-%d-%d", at, round))
			}
			var wire bytes.Buffer
			if err := serializer.Encode(object, &wire); err != nil {
				log.Fatalf("%v: %v", kind, err)
			}
			if tamed {
				name(object, fmt.Sprintf("text-%d-%d", at, round))
			}
			text, err := json.Marshal(object)
			if err != nil {
				log.Fatalf("%v: %v", kind, err)
			}
			fmt.Fprintln(out, kind.GroupVersion(), kind.Kind, base64.StdEncoding.EncodeToString(wire.Bytes()), string(text))
		}
	}
}

func argument(at int, otherwise int64) int64 {
	if len(os.Args) <= at {
		return otherwise
	}
	value, err := strconv.ParseInt(os.Args[at], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func pick[T any](from []T, c randfill.Continue) T { return from[c.Intn(len(from))] }

func moment(c randfill.Continue) time.Time {
	if c.Intn(5) == 0 {
		return time.Time{}
	}
	return time.Unix(c.Int63n(4e9)-1e9, c.Int63n(1e9))
}

// schema fills one level and a little; the fields that hold schemas again would make objects without end.
func schema(c randfill.Continue) *apiextensionsv1.JSONSchemaProps {
	filled := apiextensionsv1.JSONSchemaProps{Type: c.String(8), Nullable: c.Bool(), MaxLength: nil, XEmbeddedResource: c.Bool()}
	if c.Bool() {
		length := c.Int63n(2)
		filled.MaxLength = &length
	}
	if c.Intn(3) == 0 {
		filled.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: schema(c)}
	}
	if c.Intn(3) == 0 {
		filled.Properties = map[string]apiextensionsv1.JSONSchemaProps{c.String(4): *schema(c)}
	}
	return &filled
}
