package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// pod checks what all pods have in common.
func (c *check) pod(template corev1.PodTemplateSpec) {
	const spec = "spec.template.spec"
	c.restricted(template)
	if mounted := template.Spec.AutomountServiceAccountToken; mounted == nil || *mounted {
		c.fail(spec+".automountServiceAccountToken", "must be false: a program gets a token only if it calls Kubernetes")
	}
	if template.Spec.ServiceAccountName == "" || template.Spec.ServiceAccountName == "default" {
		c.fail(spec+".serviceAccountName", "must be an account of the program's own")
	}
	if template.Spec.PriorityClassName == "" {
		c.fail(spec+".priorityClassName", "is required")
	}
	if template.Spec.HostNetwork || template.Spec.HostPID || template.Spec.HostIPC {
		c.fail(spec, "namespaces of the node are not allowed")
	}
	for i, container := range template.Spec.InitContainers {
		c.container(fmt.Sprintf("%s.initContainers[%d]", spec, i), template, container)
	}
	for i, container := range template.Spec.Containers {
		c.container(fmt.Sprintf("%s.containers[%d]", spec, i), template, container)
	}
}

// restricted evaluates Kubernetes' pod security standard `restricted`, in its latest version.
func (c *check) restricted(template corev1.PodTemplateSpec) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		c.fail("spec.template", "evaluating pod security: %v", err)
		return
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
	if !result.Allowed {
		c.fail("spec.template.spec", "breaks the pod security standard restricted: %s (%s)", result.ForbiddenReason(), strings.TrimSpace(result.ForbiddenDetail()))
	}
}
