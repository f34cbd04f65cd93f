// Package served says which kinds Bursar's facts are about. The two programs that need to agree on it share it.
package served

import (
	"reflect"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// Kind is a served kind and the Go type that holds it.
type Kind struct {
	schema.GroupVersionKind
	Type reflect.Type
}

var groupVersions = []schema.GroupVersion{
	{Group: "", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "apiextensions.k8s.io", Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "autoscaling", Version: "v2"},
	{Group: "batch", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "node.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1"},
}

// The kinds every group-version shares, given once under meta.k8s.io.
var shared = []any{
	metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{},
	metav1.CreateOptions{}, metav1.DeleteOptions{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
	metav1.PatchOptions{}, metav1.Status{}, metav1.UpdateOptions{},
}

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"

// Scheme knows every built-in kind and the CustomResourceDefinition.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}

// Kinds lists the served kinds in a stable order.
func Kinds() []Kind {
	var kinds []Kind
	scheme := Scheme()
	for _, groupVersion := range groupVersions {
		for kind, typ := range scheme.KnownTypes(groupVersion) {
			if typ.PkgPath() != metaPackage {
				kinds = append(kinds, Kind{groupVersion.WithKind(kind), typ})
			}
		}
	}
	meta := schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"}
	for _, value := range shared {
		typ := reflect.TypeOf(value)
		kinds = append(kinds, Kind{meta.WithKind(typ.Name()), typ})
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds
}
