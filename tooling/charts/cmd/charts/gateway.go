package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The annotations of pods that Istio reads: the template of the injection, and the configuration of the proxy.
const (
	templateAnnotation = "inject.istio.io/templates"
	proxyAnnotation    = "proxy.istio.io/config"
)

// isGateway reports whether Istio injects its gateway into a container. Istio replaces the image, so the chart cannot select it by digest.
func isGateway(template corev1.PodTemplateSpec, container corev1.Container) bool {
	return template.Annotations[templateAnnotation] == "gateway" && template.Labels["sidecar.istio.io/inject"] == "true" &&
		container.Name == "istio-proxy" && container.Image == "auto"
}

// gatewayDrain returns the seconds in which a gateway finishes its requests after SIGTERM, or 0.
func gatewayDrain(template corev1.PodTemplateSpec) int64 {
	var proxy struct {
		TerminationDrainDuration string `json:"terminationDrainDuration"`
	}
	if err := yaml.Unmarshal([]byte(template.Annotations[proxyAnnotation]), &proxy); err != nil {
		return 0
	}
	duration, err := time.ParseDuration(proxy.TerminationDrainDuration)
	if err != nil {
		return 0
	}
	return int64(duration / time.Second)
}
