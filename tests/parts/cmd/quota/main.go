// quota answers, one line of JSON a question, what Kubernetes' own quota and LimitRange code makes of an object.
//
//	{"ask":"measure","quota":SPEC,"resource":R,"object":O} -> {"object":O after defaulting,"matches":B,"missing":TEXT,"usage":{NAME:QUANTITY}}
//	{"ask":"validate","quota":Q,"old":Q or null}           -> {"errors":[TEXT]}
//	{"ask":"limits","range":L,"resource":R,"object":O}     -> {"errors":[TEXT]} of the range, else {"before":O after defaulting,"object":O as admitted,"refused":[TEXT]}
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/clock"
)

type question struct {
	Ask      string          `json:"ask"`
	Quota    json.RawMessage `json:"quota"`
	Old      json.RawMessage `json:"old"`
	Range    json.RawMessage `json:"range"`
	Resource string          `json:"resource"`
	Object   json.RawMessage `json:"object"`
}

type answer struct {
	Before  runtime.Object    `json:"before,omitempty"`
	Object  runtime.Object    `json:"object,omitempty"`
	Matches bool              `json:"matches"`
	Missing string            `json:"missing"`
	Usage   map[string]string `json:"usage,omitempty"`
	Errors  []string          `json:"errors"`
	Refused []string          `json:"refused"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	answers := json.NewEncoder(out)
	for in.Scan() {
		var q question
		must(json.Unmarshal(in.Bytes(), &q))
		var a answer
		switch q.Ask {
		case "measure":
			a = measure(q)
		case "validate":
			a = validate(q)
		case "limits":
			a = limits(q)
		default:
			panic("unknown question " + q.Ask)
		}
		must(answers.Encode(a))
	}
	must(in.Err())
}

func measure(q question) answer {
	object := read(q.Resource, q.Object)
	// Adding up large or broken numbers changes the object they are read from.
	shown := object.DeepCopyObject()
	var rq corev1.ResourceQuota
	must(json.Unmarshal(q.Quota, &rq.Spec))
	rq.Status.Hard = rq.Spec.Hard
	evaluator := evaluatorOf(q.Resource)
	matches, err := evaluator.Matches(&rq, object)
	must(err)
	usage, err := evaluator.Usage(object)
	must(err)
	names := quota.ResourceNames(rq.Status.Hard)
	a := answer{Object: shown, Matches: matches, Usage: map[string]string{}}
	for name, value := range quota.Mask(usage, names) {
		a.Usage[string(name)] = value.String()
	}
	if err := evaluator.Constraints(evaluator.MatchingResources(names), object); err != nil {
		a.Missing = err.Error()
	}
	return a
}

func evaluatorOf(resource string) quota.Evaluator {
	switch resource {
	case "pods":
		return evaluators.NewPodEvaluator(nil, clock.RealClock{})
	case "services":
		return evaluators.NewServiceEvaluator(nil)
	case "persistentvolumeclaims":
		return evaluators.NewPersistentVolumeClaimEvaluator(nil)
	case "resourceclaims":
		classes := extendedresourcecache.NewExtendedResourceCache(klog.Background())
		return evaluators.NewResourceClaimEvaluator(nil, classes, nil, nil)
	}
	panic("no evaluator for " + resource)
}

func validate(q question) answer {
	rq := internalQuota(q.Quota)
	if q.Old == nil || string(q.Old) == "null" {
		return answer{Errors: texts(validation.ValidateResourceQuota(rq))}
	}
	return answer{Errors: texts(validation.ValidateResourceQuotaUpdate(rq, internalQuota(q.Old)))}
}

func internalQuota(data []byte) *api.ResourceQuota {
	var rq corev1.ResourceQuota
	must(json.Unmarshal(data, &rq))
	legacyscheme.Scheme.Default(&rq)
	var internal api.ResourceQuota
	must(legacyscheme.Scheme.Convert(&rq, &internal, nil))
	return &internal
}

func limits(q question) answer {
	var lr corev1.LimitRange
	must(json.Unmarshal(q.Range, &lr))
	legacyscheme.Scheme.Default(&lr)
	var internal api.LimitRange
	must(legacyscheme.Scheme.Convert(&lr, &internal, nil))
	if errs := validation.ValidateLimitRange(&internal); len(errs) > 0 {
		return answer{Errors: texts(errs)}
	}
	object := read(q.Resource, q.Object)
	before := object.DeepCopyObject()
	var err error
	switch q.Resource {
	case "pods":
		var pod api.Pod
		must(legacyscheme.Scheme.Convert(object, &pod, nil))
		must(limitranger.PodMutateLimitFunc(&lr, &pod))
		err = limitranger.PodValidateLimitFunc(&lr, &pod)
		admitted := &corev1.Pod{}
		must(legacyscheme.Scheme.Convert(&pod, admitted, nil))
		object = admitted
	case "persistentvolumeclaims":
		var claim api.PersistentVolumeClaim
		must(legacyscheme.Scheme.Convert(object, &claim, nil))
		err = limitranger.PersistentVolumeClaimValidateLimitFunc(&lr, &claim)
	}
	a := answer{Before: before, Object: object}
	if aggregate, ok := err.(utilerrors.Aggregate); ok {
		seen := map[string]bool{}
		for _, one := range aggregate.Errors() {
			if !seen[one.Error()] {
				a.Refused = append(a.Refused, one.Error())
			}
			seen[one.Error()] = true
		}
		sort.Strings(a.Refused)
	} else {
		must(err)
	}
	return a
}

func read(resource string, data []byte) runtime.Object {
	var object runtime.Object
	switch resource {
	case "pods":
		object = &corev1.Pod{}
	case "services":
		object = &corev1.Service{}
	case "persistentvolumeclaims":
		object = &corev1.PersistentVolumeClaim{}
	case "resourceclaims":
		object = &resourcev1.ResourceClaim{}
	default:
		panic("unknown resource " + resource)
	}
	must(json.Unmarshal(data, object))
	legacyscheme.Scheme.Default(object)
	return object
}

func texts(errs field.ErrorList) []string {
	list := []string{}
	for _, err := range errs {
		list = append(list, err.Error())
	}
	sort.Strings(list)
	return list
}

func must(err error) {
	if err != nil {
		os.Stderr.WriteString(time.Now().Format(time.RFC3339) + " " + err.Error() + "\n")
		panic(err)
	}
}
