// Package gateway checks kubernetes.yaml. It is in a separate module, so that the other modules do
// not depend on the types of the Kubernetes API.
package gateway

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// decode returns the objects of kubernetes.yaml, by kind and name. An unknown or duplicate field is
// an error.
func decode(t *testing.T) map[string]any {
	t.Helper()
	file, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]any{}
	for _, text := range strings.Split(string(file), "\n---\n")[1:] {
		var about struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(text), &about); err != nil {
			t.Fatal(err)
		}
		types := map[string]any{
			"batch/v1 Job": &batchv1.Job{}, "apps/v1 Deployment": &appsv1.Deployment{}, "v1 Service": &corev1.Service{},
			"policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{},
		}
		object := types[about.APIVersion+" "+about.Kind]
		if object == nil {
			t.Fatalf("%s %s is not a known kind", about.APIVersion, about.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Errorf("%s %s: %v", about.Kind, about.Metadata.Name, err)
		}
		objects[about.Kind+" "+about.Metadata.Name] = object
	}
	return objects
}

// selects reports whether a selector matches the labels of a pod.
func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

func TestObjectsBelongTogether(t *testing.T) {
	objects := decode(t)
	want := []string{
		"Deployment ratelimit-gateway", "Deployment ratelimit-watch", "Job ratelimit-deploy",
		"NetworkPolicy ratelimit-egress", "NetworkPolicy ratelimit-gateway", "PodDisruptionBudget ratelimit-gateway", "Service ratelimit-gateway",
	}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	gateway := objects["Deployment ratelimit-gateway"].(*appsv1.Deployment).Spec
	watch := objects["Deployment ratelimit-watch"].(*appsv1.Deployment).Spec
	service := objects["Service ratelimit-gateway"].(*corev1.Service).Spec
	labels := gateway.Template.Labels
	for name, selector := range map[string]map[string]string{
		"the Deployment":          gateway.Selector.MatchLabels,
		"the spread":              gateway.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		"the Service":             service.Selector,
		"the PodDisruptionBudget": objects["PodDisruptionBudget ratelimit-gateway"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"the NetworkPolicy":       objects["NetworkPolicy ratelimit-gateway"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
	} {
		if !selects(selector, labels) {
			t.Errorf("%s selects %v, and the pods have %v", name, selector, labels)
		}
	}
	if !selects(watch.Selector.MatchLabels, watch.Template.Labels) {
		t.Errorf("the watch selects %v, and its pod has %v", watch.Selector.MatchLabels, watch.Template.Labels)
	}
	job := objects["Job ratelimit-deploy"].(*batchv1.Job).Spec.Template
	egress := objects["NetworkPolicy ratelimit-egress"].(*networkingv1.NetworkPolicy).Spec
	secrets := map[string]bool{}
	for _, pod := range []corev1.PodTemplateSpec{gateway.Template, watch.Template, job} {
		if !selects(egress.PodSelector.MatchLabels, pod.Labels) {
			t.Errorf("no egress policy selects %v", pod.Labels)
		}
		container := pod.Spec.Containers[0]
		secrets[container.Env[0].ValueFrom.SecretKeyRef.Name] = true
		if !strings.Contains(container.Image, "@sha256:") {
			t.Errorf("%s is not pinned by a digest", container.Image)
		}
	}
	if len(secrets) != 3 || len(egress.Egress) != 2 || egress.PolicyTypes[0] != networkingv1.PolicyTypeEgress {
		t.Errorf("the secrets %v, the egress %+v", secrets, egress)
	}
	container := gateway.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, port := range service.Ports {
		if ports[port.TargetPort.StrVal] != port.Port {
			t.Errorf("the Service has the port %s, and the pods have %v", port.Name, ports)
		}
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if ports[probe.HTTPGet.Port.StrVal] == 0 {
			t.Errorf("a probe asks the port %s", probe.HTTPGet.Port.StrVal)
		}
	}
	for name, pod := range map[string]corev1.PodSpec{
		"the gateway": gateway.Template.Spec, "the watch": watch.Template.Spec, "the job": job.Spec,
	} {
		secure := pod.Containers[0].SecurityContext
		if !*pod.SecurityContext.RunAsNonRoot || !*secure.ReadOnlyRootFilesystem || *secure.AllowPrivilegeEscalation || pod.Containers[0].Env[0].Name != "REDIS_URL" {
			t.Errorf("%s: %+v %+v", name, secure, pod.Containers[0].Env)
		}
		for _, mount := range pod.Containers[0].VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
				t.Errorf("%s mounts %s, which is no volume", name, mount.Name)
			}
		}
	}
}
