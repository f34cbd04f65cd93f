// merge answers, line by line, what Kubernetes makes of patches and of server-side apply. A question is one JSON object:
//
//	{"op": "diff", "apiVersion", "kind", "a", "b"}     the strategic patch from a to b, and a patched with it
//	{"op": "created", "apiVersion", "kind", "a"}       a as its creator "m" owns it
//	{"op": "apply", "apiVersion", "kind", "a", "steps": [{"manager", "force", "applied"}]}
//
// The answer is {"patch", "result"} or {"error"}, on one line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

type question struct {
	Op         string          `json:"op"`
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	A          json.RawMessage `json:"a"`
	B          json.RawMessage `json:"b"`
	Steps      []struct {
		Manager string          `json:"manager"`
		Force   bool            `json:"force"`
		Applied json.RawMessage `json:"applied"`
	} `json:"steps"`
}

type answer struct {
	Patch  json.RawMessage `json:"patch,omitempty"`
	Result interface{}     `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		result, err := reply(q, converter)
		if err != nil {
			result = answer{Error: err.Error()}
		}
		line, err := json.Marshal(result)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out.Write(append(line, '\n'))
	}
}

func reply(q question, converter managedfields.TypeConverter) (answer, error) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	empty, err := scheme.Scheme.New(gvk)
	if err != nil {
		return answer{}, err
	}
	if q.Op == "diff" {
		patch, err := strategicpatch.CreateTwoWayMergePatch(q.A, q.B, empty)
		if err != nil {
			return answer{}, err
		}
		result, err := strategicpatch.StrategicMergePatch(q.A, patch, empty)
		return answer{Patch: patch, Result: json.RawMessage(result)}, err
	}
	manager, err := managedfields.NewDefaultFieldManager(
		converter, scheme.Scheme, scheme.Scheme, scheme.Scheme, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return answer{}, err
	}
	object, err := typed(gvk, q.A)
	if err != nil {
		return answer{}, err
	}
	empty.GetObjectKind().SetGroupVersionKind(gvk)
	object, err = manager.Update(empty, object, "m")
	if err != nil {
		return answer{}, err
	}
	for _, step := range q.Steps {
		// What is stored has a uid; without one the object counts as new.
		accessor, err := meta.Accessor(object)
		if err != nil {
			return answer{}, err
		}
		accessor.SetUID("u")
		object.GetObjectKind().SetGroupVersionKind(gvk)
		// Kubernetes' own reader keeps integers.
		applied := map[string]interface{}{}
		if err := utiljson.Unmarshal(step.Applied, &applied); err != nil {
			return answer{}, err
		}
		object, err = manager.Apply(object, &unstructured.Unstructured{Object: applied}, step.Manager, step.Force)
		if err != nil {
			return answer{}, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return answer{Result: object}, nil
}

func typed(gvk schema.GroupVersionKind, text []byte) (runtime.Object, error) {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return object, nil
}
