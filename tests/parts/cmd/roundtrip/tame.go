package main

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Random text offends every rule there is, and a refused object says nothing about how it is stored. So every text becomes
// a short word and every number a small one, and what a kind insists on is put right kind by kind. The rest stays random.
func tame(object runtime.Object, seed int64) {
	random := rand.New(rand.NewSource(seed))
	soften(reflect.ValueOf(object).Elem(), random)
	accessor, err := meta.Accessor(object)
	if err != nil {
		return // lists and reviews without metadata
	}
	metadata(accessor, random)
	switch o := object.(type) {
	case *corev1.Pod:
		template(&o.ObjectMeta, &o.Spec)
		o.Status.QOSClass = ""
	case *corev1.PodTemplate:
		template(&o.Template.ObjectMeta, &o.Template.Spec)
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			o.Spec.Template = &corev1.PodTemplateSpec{}
		}
		template(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
		o.Spec.Selector = map[string]string{"app": "controller"}
		o.Spec.Template.Labels = map[string]string{"app": "controller"}
		zero(&o.Spec.Replicas)
	case *appsv1.Deployment:
		o.Spec.Selector = selector()
		template(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
		zero(&o.Spec.Replicas)
		o.Spec.Strategy = appsv1.DeploymentStrategy{}
	case *appsv1.ReplicaSet:
		// Another label than everybody else's: controllers adopt what their selectors find.
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}
		template(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
		o.Labels["app"], o.Spec.Template.Labels["app"] = "set", "set"
		zero(&o.Spec.Replicas)
	case *appsv1.StatefulSet:
		o.Spec.Selector = selector()
		template(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
		o.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{}
	case *appsv1.DaemonSet:
		o.Spec.Selector = selector()
		template(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
		o.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{}
	case *batchv1.Job:
		job(&o.Spec)
	case *batchv1.CronJob:
		o.Spec.Schedule = "0 3 * * *"
		o.Spec.TimeZone = nil
		o.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
		job(&o.Spec.JobTemplate.Spec)
	case *corev1.Service:
		service(&o.Spec, random)
	case *corev1.ResourceQuota:
		o.Spec = corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"pods": *resource.NewQuantity(random.Int63n(1000)+1000, resource.DecimalSI), "requests.cpu": resource.MustParse("1e6"),
		}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}}
		o.Status = corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{"pods": resource.MustParse("01")}}
	case *corev1.LimitRange:
		most := resource.MustParse("1.5Gi")
		o.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": most}}}
	case *corev1.PersistentVolumeClaim:
		claim(&o.Spec)
	case *corev1.PersistentVolume:
		o.Spec.Capacity = corev1.ResourceList{"storage": resource.MustParse("1e3")}
		o.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		o.Spec.ClaimRef = nil
		o.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	case *schedulingv1.PriorityClass:
		o.GlobalDefault = false
	case *corev1.Secret:
		o.Type = "example.com/own"
	case *corev1.ConfigMap:
		o.BinaryData = nil
	case *networkingv1.Ingress:
		if o.Spec.DefaultBackend == nil {
			o.Spec.DefaultBackend = &networkingv1.IngressBackend{}
		}
	case *networkingv1.NetworkPolicy:
		o.Spec.PolicyTypes = nil
	case *corev1.Event:
		o.InvolvedObject.Namespace = place
	case *eventsv1.Event:
		o.Regarding.Namespace = place
	case *authorizationv1.SelfSubjectAccessReview:
		o.Spec.ResourceAttributes, o.Spec.NonResourceAttributes = asked(), nil
	case *authorizationv1.SubjectAccessReview:
		o.Spec.ResourceAttributes, o.Spec.NonResourceAttributes = asked(), nil
	case *authorizationv1.LocalSubjectAccessReview:
		o.Spec.ResourceAttributes, o.Spec.NonResourceAttributes = asked(), nil
	case *rbacv1.RoleBinding:
		o.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
		subjects(o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		o.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
		subjects(o.Subjects)
	case *rbacv1.Role:
		policies(o.Rules)
	case *rbacv1.ClusterRole:
		policies(o.Rules)
		o.AggregationRule = nil
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for at := range o.Webhooks {
			hook := &o.Webhooks[at]
			hooks(&hook.Name, at, &hook.ClientConfig, hook.Rules, &hook.SideEffects, &hook.AdmissionReviewVersions)
			hook.TimeoutSeconds, hook.NamespaceSelector, hook.ObjectSelector = nil, nil, selector()
			hook.MatchConditions = conditions(len(hook.MatchConditions))
			hook.FailurePolicy, hook.MatchPolicy = nil, nil
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for at := range o.Webhooks {
			hook := &o.Webhooks[at]
			hooks(&hook.Name, at, &hook.ClientConfig, hook.Rules, &hook.SideEffects, &hook.AdmissionReviewVersions)
			hook.TimeoutSeconds, hook.NamespaceSelector, hook.ObjectSelector = nil, nil, selector()
			hook.MatchConditions = conditions(len(hook.MatchConditions))
			hook.FailurePolicy, hook.MatchPolicy, hook.ReinvocationPolicy = nil, nil, nil
		}
	case *apiextensionsv1.CustomResourceDefinition:
		definition(&o.Spec)
		o.Status.StoredVersions = []string{"v1"}
	case *resourcev1.ResourceClaim:
		o.Spec.Devices = devices()
	case *resourcev1.ResourceClaimTemplate:
		o.Spec.Spec.Devices = devices()
	case *nodev1.RuntimeClass:
		o.Overhead = nil
	}
}

// The namespace that the objects are stored in.
const place = "roundtrip"

// name gives the object a name of its own. A definition's says what it defines.
func name(object runtime.Object, to string) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	accessor.SetName(to)
	if definition, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		definition.Spec.Names.Plural = "things"
		definition.Spec.Group = to + ".example.com"
		definition.Name = "things." + definition.Spec.Group
	}
}

var words = strings.Fields("ant bee cat dog eel fox gnu hen ibis jay kid lark")

// Types with a form of their own, which random words would only break.
var whole = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():    true,
	reflect.TypeFor[metav1.Time]():          true,
	reflect.TypeFor[metav1.MicroTime]():     true,
	reflect.TypeFor[metav1.TypeMeta]():      true,
	reflect.TypeFor[metav1.ObjectMeta]():    true,
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[apiextensionsv1.JSON](): true,
	reflect.TypeFor[intstr.IntOrString]():   true,
	reflect.TypeFor[metav1.FieldsV1]():      true,
}

func soften(value reflect.Value, random *rand.Rand) {
	if whole[value.Type()] {
		if value.Type() == reflect.TypeFor[metav1.ObjectMeta]() {
			metadata(value.Addr().Interface().(metav1.Object), random)
		}
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(words[random.Intn(len(words))])
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(1 + random.Int63n(1000))
	case reflect.Pointer:
		if !value.IsNil() {
			soften(value.Elem(), random)
		}
	case reflect.Struct:
		for at := range value.NumField() {
			if value.Field(at).CanSet() {
				soften(value.Field(at), random)
			}
		}
	case reflect.Slice:
		for at := range value.Len() {
			soften(value.Index(at), random)
		}
	case reflect.Map:
		softened := reflect.MakeMap(value.Type())
		for at, key := range value.MapKeys() {
			inner := reflect.New(value.Type().Elem()).Elem()
			inner.Set(value.MapIndex(key))
			soften(inner, random)
			word := reflect.ValueOf(words[at%len(words)]).Convert(value.Type().Key())
			softened.SetMapIndex(word, inner)
		}
		if !value.IsNil() {
			value.Set(softened)
		}
	}
}

// metadata keeps what clients may say, and something of what they may not and servers ignore.
func metadata(accessor metav1.Object, random *rand.Rand) {
	word := func() string { return words[random.Intn(len(words))] }
	var namespace string
	if accessor.GetNamespace() != "" {
		namespace = place
	}
	accessor.SetNamespace(namespace)
	accessor.SetName("inner")
	accessor.SetGenerateName("")
	accessor.SetResourceVersion("")
	accessor.SetUID("")
	accessor.SetCreationTimestamp(metav1.Time{})
	accessor.SetSelfLink(word())
	accessor.SetGeneration(random.Int63n(5))
	accessor.SetDeletionTimestamp(nil)
	accessor.SetDeletionGracePeriodSeconds(nil)
	accessor.SetOwnerReferences(nil)
	accessor.SetManagedFields(nil)
	accessor.SetFinalizers(nil)
	if random.Intn(3) == 0 {
		accessor.SetFinalizers([]string{"example.com/" + word()})
	}
	accessor.SetLabels(map[string]string{"app": "x", "example.com/" + word(): word()})
	accessor.SetAnnotations(map[string]string{word(): "anything: \"goes\"\n ü"})
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
}

// Nothing that makes pods is to make thousands.
func zero(replicas **int32) { *replicas = new(int32) }

func template(metadata *metav1.ObjectMeta, spec *corev1.PodSpec) {
	metadata.Labels = map[string]string{"app": "x"}
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{}}
	}
	// Names are keys, and keys are said once.
	for at := range spec.Containers {
		container(&spec.Containers[at], "c", at)
	}
	for at := range spec.InitContainers {
		container(&spec.InitContainers[at], "i", at)
	}
	spec.EphemeralContainers = nil
	for at := range spec.Volumes {
		// One source a volume: the config map if there is one.
		source := corev1.VolumeSource{ConfigMap: spec.Volumes[at].ConfigMap}
		spec.Volumes[at] = corev1.Volume{Name: fmt.Sprintf("v-%d", at), VolumeSource: source}
	}
	spec.RestartPolicy = corev1.RestartPolicyAlways
	spec.NodeName, spec.PriorityClassName, spec.Priority, spec.RuntimeClassName = "", "", nil, nil
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "default", "default"
	spec.Overhead, spec.PreemptionPolicy, spec.Resources = nil, nil, nil
	spec.TerminationGracePeriodSeconds = nil
	spec.DNSPolicy = ""
	for at := range spec.Tolerations {
		spec.Tolerations[at].Operator = corev1.TolerationOpEqual
	}
}

func container(container *corev1.Container, prefix string, at int) {
	container.Name = fmt.Sprintf("%s-%d", prefix, at)
	container.Image = "registry.example.com/nginx:1.25"
	container.ImagePullPolicy = ""
	container.VolumeMounts = nil
	for at := range container.Ports {
		container.Ports[at].Name, container.Ports[at].Protocol = "", corev1.ProtocolTCP
	}
	for at := range container.Env {
		container.Env[at].Name = fmt.Sprintf("E_%d", at)
		if container.Env[at].ValueFrom != nil {
			container.Env[at].Value = ""
		}
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		if probe != nil && probe.Exec == nil {
			probe.Exec = &corev1.ExecAction{Command: []string{"true"}}
		}
	}
	container.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{
		"memory": resource.MustParse("1.5Gi"), "cpu": resource.MustParse("1500m"),
	}}
}

func job(spec *batchv1.JobSpec) {
	spec.Selector, spec.ManualSelector = nil, nil
	template(&spec.Template.ObjectMeta, &spec.Template.Spec)
	spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	spec.CompletionMode, spec.PodReplacementPolicy, spec.PodFailurePolicy, spec.SuccessPolicy = nil, nil, nil, nil
	spec.ManagedBy, spec.BackoffLimitPerIndex, spec.MaxFailedIndexes = nil, nil, nil
}

func service(spec *corev1.ServiceSpec, random *rand.Rand) {
	spec.Type = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}[random.Intn(3)]
	spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = "", nil, nil, nil
	spec.ExternalIPs, spec.ExternalName, spec.LoadBalancerIP, spec.LoadBalancerSourceRanges = nil, "", "", nil
	spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	spec.ExternalTrafficPolicy, spec.InternalTrafficPolicy, spec.HealthCheckNodePort = "", nil, 0
	spec.TrafficDistribution, spec.LoadBalancerClass = nil, nil
	spec.Ports = []corev1.ServicePort{
		{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")},
		{Name: "b", Port: 443, TargetPort: intstr.FromInt32(8443)},
	}
}

func claim(spec *corev1.PersistentVolumeClaimSpec) {
	spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	spec.Resources = corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("0.5")}}
	spec.VolumeMode, spec.VolumeName, spec.DataSource, spec.DataSourceRef, spec.Selector = nil, "", nil, nil, nil
}

func asked() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Namespace: place, Verb: "get", Resource: "pods"}
}

func subjects(all []rbacv1.Subject) {
	for at := range all {
		all[at] = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fmt.Sprintf("user-%d", at)}
	}
}

func policies(rules []rbacv1.PolicyRule) {
	for at := range rules {
		rules[at].NonResourceURLs = nil
		rules[at].Verbs, rules[at].APIGroups, rules[at].Resources = []string{"get"}, []string{"", "apps"}, []string{"pods", "things"}
	}
}

func hooks(
	name *string, at int, config *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations,
	effects **admissionregistrationv1.SideEffectClass, versions *[]string,
) {
	*name = fmt.Sprintf("hook-%d.example.com", at)
	url := "https://127.0.0.1:1/hook"
	*config = admissionregistrationv1.WebhookClientConfig{URL: &url}
	for at := range rules {
		// Nobody is to be asked.
		rules[at].APIGroups, rules[at].APIVersions, rules[at].Resources = []string{"nosuch.example.com"}, []string{"*"}, []string{"things"}
		rules[at].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		rules[at].Scope = nil
	}
	none := admissionregistrationv1.SideEffectClassNone
	*effects = &none
	*versions = []string{"v1"}
}

func conditions(count int) []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	for at := range count {
		all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("condition-%d", at), Expression: "object.x == 1"})
	}
	return all
}

// Requests for devices that can be counted.
func devices() resourcev1.DeviceClaim {
	exact := resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}
	return resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &exact}}}
}

func definition(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
	spec.Scope = apiextensionsv1.NamespaceScoped
	spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Thing", Singular: "thing", ListKind: "ThingList", Categories: spec.Names.Categories}
	spec.PreserveUnknownFields = false
	spec.Conversion = nil
	most, kept := 3.25, true
	spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &kept,
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"size":  {Type: "number", Maximum: &most, Default: &apiextensionsv1.JSON{Raw: []byte("0.5")}},
				"parts": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
				"any":   {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{XIntOrString: true}}},
			},
		}},
		AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "number", JSONPath: ".size"}},
	}}
}
