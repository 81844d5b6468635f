package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

// ruleBreak is a rule that an object breaks.
type ruleBreak struct {
	// Object is the kind and the name of the object, Field the path of the field.
	Object, Field string
	Message       string
}

// String returns OBJECT: FIELD: MESSAGE.
func (b ruleBreak) String() string { return b.Object + ": " + b.Field + ": " + b.Message }

// checkObjects returns the rules that the objects of one chart break, in the order of the objects.
func checkObjects(objects chart.Objects) []ruleBreak {
	c := &check{}
	for _, object := range objects {
		c.object = chart.ID(object)
		c.names(object)
		switch object.GetKind() {
		case "Deployment":
			if d := decode[appsv1.Deployment](c, object); d != nil {
				c.deployment(d)
				c.served(objects, d.Namespace, d.Spec.Template.Labels)
			}
		case "StatefulSet":
			if s := decode[appsv1.StatefulSet](c, object); s != nil {
				c.longRunning(s.Spec.Template)
				c.served(objects, s.Namespace, s.Spec.Template.Labels)
			}
		case "Job":
			if j := decode[batchv1.Job](c, object); j != nil {
				c.job(j)
			}
		case "Pod", "DaemonSet", "CronJob", "ReplicaSet":
			c.fail("kind", "there are no rules for pods of this kind")
		case "Secret":
			c.fail("kind", "a chart must not contain secrets")
		}
	}
	return c.breaks
}

type check struct {
	object string
	breaks []ruleBreak
}

func (c *check) fail(field, format string, values ...any) {
	c.breaks = append(c.breaks, ruleBreak{c.object, field, fmt.Sprintf(format, values...)})
}

// decode converts an object to its type. A field that the type does not have is a broken rule.
func decode[T any](c *check, object *unstructured.Unstructured) *T {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		c.fail("spec", "%v", err)
		return nil
	}
	return typed
}

// names checks that an object says to what it belongs.
func (c *check) names(object *unstructured.Unstructured) {
	for _, label := range []string{"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by"} {
		if object.GetLabels()[label] == "" {
			c.fail("metadata.labels", "the label %s is missing", label)
		}
	}
}

func (c *check) deployment(d *appsv1.Deployment) {
	rolling := d.Spec.Strategy.RollingUpdate
	switch {
	case rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxSurge == nil:
		if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			c.fail("spec.strategy", "maxSurge and maxUnavailable are required")
		}
	case rolling.MaxUnavailable.String() != "0":
		c.fail("spec.strategy.rollingUpdate.maxUnavailable", "is %s: a rollout must not take pods out of service", rolling.MaxUnavailable)
	}
	if d.Spec.MinReadySeconds == 0 {
		c.fail("spec.minReadySeconds", "is required: a pod that fails at once must stop the rollout")
	}
	c.longRunning(d.Spec.Template)
}

// longRunning checks the pods of a program that serves.
func (c *check) longRunning(template corev1.PodTemplateSpec) {
	c.pod(template)
	spread := map[string]bool{}
	for _, constraint := range template.Spec.TopologySpreadConstraints {
		if matches(constraint.LabelSelector, template.Labels) {
			spread[constraint.TopologyKey] = true
		}
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		if !spread[key] {
			c.fail("spec.template.spec.topologySpreadConstraints", "the pods are not spread over %s", key)
		}
	}
	for i, container := range template.Spec.Containers {
		field, drained := fmt.Sprintf("spec.template.spec.containers[%d]", i), drain(container.Args)
		seconds, foreign := shutdown(template)
		switch {
		case isGateway(template, container):
			if drained = gatewayDrain(template); drained == 0 {
				c.fail("spec.template.metadata.annotations", "%s has no terminationDrainDuration", proxyAnnotation)
			}
		case foreign:
			drained = seconds
			c.foreign(field, container, seconds)
		case drained == 0:
			c.fail(field+".args", "--drain is required")
		}
		c.serving(field, container, drained, template.Spec.TerminationGracePeriodSeconds)
	}
}

// serving checks the probes of a container and how it ends. drained are the seconds after SIGTERM in which it serves on.
func (c *check) serving(field string, container corev1.Container, drained int64, grace *int64) {
	for name, probe := range map[string]*corev1.Probe{"startupProbe": container.StartupProbe, "readinessProbe": container.ReadinessProbe, "livenessProbe": container.LivenessProbe} {
		if probe == nil {
			c.fail(field+"."+name, "is required")
		}
	}
	if container.LivenessProbe != nil && container.ReadinessProbe != nil && container.LivenessProbe.HTTPGet != nil && container.ReadinessProbe.HTTPGet != nil &&
		container.LivenessProbe.HTTPGet.Path == container.ReadinessProbe.HTTPGet.Path {
		c.fail(field+".livenessProbe", "is the readiness probe: Kubernetes would restart a program that waits for a dependency")
	}
	if container.Lifecycle == nil || container.Lifecycle.PreStop == nil || container.Lifecycle.PreStop.Sleep == nil {
		c.fail(field+".lifecycle.preStop.sleep", "is required: requests arrive until all nodes know that the pod ends")
		return
	}
	seconds := container.Lifecycle.PreStop.Sleep.Seconds + drained
	if grace == nil || *grace <= seconds {
		c.fail("spec.template.spec.terminationGracePeriodSeconds", "must be longer than preStop and --drain, %d seconds", seconds)
	}
}

var drainFlag = regexp.MustCompile(`^--drain=([0-9]+)s$`)

// drain returns the seconds of the flag --drain, or 0.
func drain(args []string) int64 {
	for _, argument := range args {
		if m := drainFlag.FindStringSubmatch(argument); m != nil {
			var seconds int64
			if _, err := fmt.Sscan(m[1], &seconds); err == nil {
				return seconds
			}
		}
	}
	return 0
}

func (c *check) job(j *batchv1.Job) {
	c.pod(j.Spec.Template)
	if j.Spec.BackoffLimit == nil || j.Spec.ActiveDeadlineSeconds == nil {
		c.fail("spec", "backoffLimit and activeDeadlineSeconds are required: a job must end")
	}
}

// served checks that pods have a disruption budget, and that their network is closed by default.
func (c *check) served(objects chart.Objects, namespace string, podLabels map[string]string) {
	budget, closed := false, false
	for _, other := range objects {
		if other.GetNamespace() != namespace {
			continue
		}
		switch other.GetKind() {
		case "PodDisruptionBudget":
			if p := decode[policyv1.PodDisruptionBudget](c, other); p != nil && matches(p.Spec.Selector, podLabels) {
				always := p.Spec.UnhealthyPodEvictionPolicy != nil && *p.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
				budget = always && (p.Spec.MaxUnavailable != nil || p.Spec.MinAvailable != nil)
			}
		case "NetworkPolicy":
			if p := decode[networkingv1.NetworkPolicy](c, other); p != nil && len(p.Spec.PodSelector.MatchLabels) == 0 && len(p.Spec.PodSelector.MatchExpressions) == 0 {
				closed = len(p.Spec.Ingress) == 0 && len(p.Spec.Egress) == 0 && len(p.Spec.PolicyTypes) == 2
			}
		}
	}
	if !budget {
		c.fail("spec.template.metadata.labels", "no PodDisruptionBudget with unhealthyPodEvictionPolicy AlwaysAllow selects the pods")
	}
	if !closed {
		c.fail("metadata.namespace", "no NetworkPolicy of the namespace %s denies all connections by default", namespace)
	}
}

func matches(selector *metav1.LabelSelector, have map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !parsed.Empty() && parsed.Matches(labels.Set(have))
}

var byDigest = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$`)

// emptyFlag matches a flag whose value is missing.
var emptyFlag = regexp.MustCompile(`^--[a-z-]+=?$`)

func (c *check) container(field string, template corev1.PodTemplateSpec, container corev1.Container) {
	if !byDigest.MatchString(container.Image) && !isGateway(template, container) {
		c.fail(field+".image", "%q does not name its registry and its digest", container.Image)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if quantity := container.Resources.Requests[name]; quantity.IsZero() {
			c.fail(field+".resources.requests."+string(name), "is required")
		}
	}
	if container.Resources.Limits.Memory().IsZero() {
		c.fail(field+".resources.limits.memory", "is required")
	}
	if security := container.SecurityContext; security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		c.fail(field+".securityContext.readOnlyRootFilesystem", "must be true")
	}
	for i, argument := range container.Args {
		if emptyFlag.MatchString(argument) {
			c.fail(fmt.Sprintf("%s.args[%d]", field, i), "%s has no value", strings.TrimSuffix(argument, "="))
		}
	}
	names := []string{}
	for _, argument := range container.Args {
		name, _, _ := strings.Cut(argument, "=")
		if slices.Contains(names, name) {
			c.fail(field+".args", "%s is set twice", name)
		}
		names = append(names, name)
	}
}
