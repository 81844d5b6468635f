package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHopelessPods checks after which states of its container a pod cannot become ready.
func TestHopelessPods(t *testing.T) {
	waiting := func(reason string, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "web", Image: "example.com/web", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	pull, pause := waiting("ErrImagePull", 0), waiting("ImagePullBackOff", 0)
	for name, c := range map[string]struct {
		states   []corev1.ContainerStatus
		hopeless bool
		reason   string
	}{
		"waits":          {[]corev1.ContainerStatus{waiting("ContainerCreating", 0), waiting("CreateContainerConfigError", 0)}, false, "a Secret can be created later"},
		"invalid image":  {[]corev1.ContainerStatus{waiting("InvalidImageName", 0)}, true, "nothing can repair it"},
		"two pulls":      {[]corev1.ContainerStatus{pull, pause, pull, pull, pause}, false, "the registry may respond again"},
		"three pulls":    {[]corev1.ContainerStatus{pull, pause, pull, pause, pull}, true, "the image is missing"},
		"two restarts":   {[]corev1.ContainerStatus{waiting("CrashLoopBackOff", 1), waiting("CrashLoopBackOff", 2)}, false, "a dependency may respond again"},
		"three restarts": {[]corev1.ContainerStatus{waiting("CrashLoopBackOff", 3)}, true, "the program ends always"},
		"was restarted":  {[]corev1.ContainerStatus{{Name: "web", RestartCount: 9, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, false, "it runs now"},
	} {
		counted := &starts{pulls: map[string]int{}, waiting: map[string]string{}}
		last := ""
		for _, state := range c.states {
			last = counted.hopeless(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{state}}})
		}
		if (last != "") != c.hopeless {
			t.Errorf("%s: %q; want a hopeless pod: %t, because %s", name, last, c.hopeless, c.reason)
		}
	}
}
