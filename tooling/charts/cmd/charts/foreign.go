package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// shutdownAnnotation is the annotation of pods whose program is not one of hcpmesh and has no flag --drain: the time in which it finishes its
// requests after SIGTERM, a Go duration. It accepts no connections then.
const shutdownAnnotation = "hcpmesh.io/shutdown"

// foreignPause is the shortest preStop pause of such a program, in seconds. In this time clients stop sending it requests, for which a program of
// hcpmesh has preStop and --drain.
const foreignPause = 15

// shutdown returns the seconds in which a program that is not one of hcpmesh finishes its requests. Others have none.
func shutdown(template corev1.PodTemplateSpec) (seconds int64, foreign bool) {
	text, foreign := template.Annotations[shutdownAnnotation]
	duration, err := time.ParseDuration(text)
	if err != nil {
		return 0, foreign
	}
	return int64(duration / time.Second), foreign
}

// foreign checks how a program ends that has no flag --drain.
func (c *check) foreign(field string, container corev1.Container, seconds int64) {
	if seconds <= 0 {
		c.fail("spec.template.metadata.annotations", "%s is no duration", shutdownAnnotation)
	}
	if lifecycle := container.Lifecycle; lifecycle != nil && lifecycle.PreStop != nil && lifecycle.PreStop.Sleep != nil && lifecycle.PreStop.Sleep.Seconds < foreignPause {
		c.fail(field+".lifecycle.preStop.sleep", "is shorter than %d seconds, and the program accepts no connections after SIGTERM", foreignPause)
	}
}
