// Command definitions answers what Kubernetes makes of CustomResourceDefinitions.
//
//	definitions             one CRD in JSON a line in, one line out: {"errors": [...], "costs": [[version, expression, cost], ...]}
//	definitions functions   the functions expressions may call, with their types; crates/rules/data/functions.txt
//
// Errors are those of a create. A cost is the static estimate of one evaluation, before it is multiplied by how often the
// rule may run.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	log.SetFlags(0)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if len(os.Args) > 1 && os.Args[1] == "functions" {
		functions(out)
		return
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			answer, _ := json.Marshal(judge(scheme, line))
			out.Write(append(answer, '\n'))
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}

type answer struct {
	Errors []string `json:"errors"`
	Costs  [][]any  `json:"costs"`
}

func judge(scheme *runtime.Scheme, text []byte) (judged answer) {
	judged = answer{Errors: []string{}, Costs: [][]any{}}
	var external apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(text, &external); err != nil {
		judged.Errors = append(judged.Errors, "decode: "+err.Error())
		return
	}
	scheme.Default(&external)
	var crd apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&external, &crd, nil); err != nil {
		judged.Errors = append(judged.Errors, "convert: "+err.Error())
		return
	}
	strategy := customresourcedefinition.NewStrategy(scheme)
	strategy.PrepareForCreate(context.Background(), &crd)
	for _, complaint := range strategy.Validate(context.Background(), &crd) {
		judged.Errors = append(judged.Errors, complaint.Error())
	}
	for i, version := range crd.Spec.Versions {
		validation := version.Schema
		if validation == nil {
			validation = crd.Spec.Validation
		}
		if validation == nil || validation.OpenAPIV3Schema == nil {
			continue
		}
		structural, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
		if err != nil {
			continue
		}
		costs(structural, true, i, &judged)
	}
	return
}

var environments = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())

func costs(schema *structuralschema.Structural, isRoot bool, version int, judged *answer) {
	if len(schema.XValidations) > 0 {
		if declared := model.SchemaDeclType(schema, isRoot || schema.XEmbeddedResource); declared != nil {
			results, err := cel.Compile(schema, declared, celconfig.PerCallLimit, environments, cel.NewExpressionsEnvLoader())
			if err == nil {
				for i, result := range results {
					if result.Error == nil && result.Program != nil {
						judged.Costs = append(judged.Costs, []any{version, schema.XValidations[i].Rule, result.MaxCost})
					}
					if result.MessageExpression != nil {
						judged.Costs = append(judged.Costs, []any{version, schema.XValidations[i].MessageExpression, result.MessageExpressionMaxCost})
					}
				}
			}
		}
	}
	if schema.Items != nil {
		costs(schema.Items, false, version, judged)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Structural != nil {
		costs(schema.AdditionalProperties.Structural, false, version, judged)
	}
	for _, property := range schema.Properties {
		costs(&property, false, version, judged)
	}
}

func functions(out *bufio.Writer) {
	env := environments.NewExpressionsEnv()
	fmt.Fprintln(out, "# The functions of Kubernetes' CEL, written by tests/parts/cmd/definitions. Do not edit.")
	names := []string{}
	for name := range env.Functions() {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		declared := env.Functions()[name]
		if declared.IsDeclarationDisabled() {
			continue
		}
		// The order of overloads decides which result type is met first.
		for _, overload := range declared.OverloadDecls() {
			style := "function"
			if overload.IsMemberFunction() {
				style = "method"
			}
			words := []string{name, overload.ID(), style, show(overload.ResultType())}
			for _, argument := range overload.ArgTypes() {
				words = append(words, show(argument))
			}
			fmt.Fprintln(out, strings.Join(words, " "))
		}
	}
	for _, variable := range env.Variables() {
		fmt.Fprintln(out, "variable", variable.Name(), show(variable.Type()))
	}
}

func show(t *celgo.Type) string {
	text := t.TypeName()
	switch t.Kind() {
	case types.DynKind:
		text = "dyn"
	case types.TypeParamKind:
		text = "<" + t.TypeName() + ">"
	case types.StructKind:
		text = "struct:" + t.TypeName()
	case types.OpaqueKind:
		text = "opaque:" + t.TypeName()
	}
	if parameters := t.Parameters(); len(parameters) > 0 {
		shown := make([]string, len(parameters))
		for i, parameter := range parameters {
			shown[i] = show(parameter)
		}
		text += "(" + strings.Join(shown, ",") + ")"
	}
	return text
}
