package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
)

// TestInstall installs, upgrades and rolls back releases in a real API server with Kubernetes' controllers.
func TestInstall(t *testing.T) {
	c := clustertest.Start(t)
	for name, test := range map[string]func(*testing.T, *scenario){
		"installs, skips and upgrades":                         upgrades,
		"rolls back an upgrade that does not become ready":     rollsBackUnready,
		"rolls back an upgrade whose migration fails":          rollsBackMigration,
		"rolls back an upgrade whose program always ends":      rollsBackHopeless,
		"keeps a first installation that fails":                keepsFirst,
		"continues after an interrupted installation":          continuesInstallation,
		"continues after an interrupted upgrade":               continuesUpgrade,
		"removes the objects of an interrupted upgrade":        removesInterrupted,
		"rolls back to an earlier content":                     rollsBackToContent,
		"changes nothing if an object belongs to someone else": refusesForeign,
		"changes nothing if the API server refuses an object":  refusesInvalid,
		"changes nothing if a StatefulSet must be replaced":    refusesReplacement,
		"shows the difference without secrets":                 showsDifference,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(name))
			test(t, newScenario(t, c, namespace))
		})
	}
}

func upgrades(t *testing.T, s *scenario) {
	if first := s.installed(t, good()); first.Revision != 1 || !first.Changed {
		t.Errorf("the installation is %+v", first)
	}
	s.mustBeRunning(t, "1", "1")
	if again := s.installed(t, good()); again.Revision != 1 || again.Changed {
		t.Errorf("the same content is %+v", again)
	}
	v := good()
	v.Web, v.Store = "2", "2"
	if next := s.installed(t, v); next.Revision != 2 || !next.Changed {
		t.Errorf("the upgrade is %+v", next)
	}
	s.mustBeRunning(t, "2", "2")
	if states := s.revisions(t); states != "superseded deployed" {
		t.Errorf("the revisions are %s", states)
	}
}

func rollsBackUnready(t *testing.T, s *scenario) {
	before := s.installed(t, good())
	v := good()
	v.Web, v.Store, v.Extra = "missing", "missing", "new"
	s.readyWithin = time.Minute
	_, err := Install(t.Context(), s.release(t, v), s.options())
	var unready *NotReadyError
	if !errors.As(err, &unready) || unready.Within != s.readyWithin || len(unready.Objects) != 2 {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"Deployment " + s.namespace + "/web: ", ": web: ImagePullBackOff", "StatefulSet " + s.namespace + "/store: ", "rolled back to revision 1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
	s.mustBeRunning(t, "1", "1")
	if states := s.revisions(t); states != "superseded failed deployed" {
		t.Errorf("the revisions are %s", states)
	}
	if names := s.configMaps(t); names != "settings" {
		t.Errorf("after the rollback there are the ConfigMaps %s", names)
	}
	s.readyWithin = 2 * time.Minute
	if again := s.installed(t, good()); again.Content != before.Content || again.Changed {
		t.Errorf("the content before is %+v, after the rollback %+v", before, again)
	}
}

// rollsBackHopeless upgrades to an image whose program always ends soon. The upgrade must fail long before the end of its time.
func rollsBackHopeless(t *testing.T, s *scenario) {
	s.installed(t, good())
	s.readyWithin = time.Hour // the test would end before
	v := good()
	v.Web = "crashes"
	_, err := Install(t.Context(), s.release(t, v), s.options())
	unready, isUnready := errors.AsType[*NotReadyError](err)
	if !isUnready || unready.Within != 0 || len(unready.Objects) != 1 {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"Deployment " + s.namespace + "/web: pod web-", "the container web has ended 4 times, at last with exit code 2", "rolled back to revision 1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
	s.mustBeRunning(t, "1", "1")
	v = good()
	v.Store = "crashes"
	if _, err = Install(t.Context(), s.release(t, v), s.options()); err == nil || !strings.Contains(err.Error(), "StatefulSet "+s.namespace+"/store: pod store-") {
		t.Errorf("the StatefulSet: %v", err)
	}
	// The pods of the failed revision are replaced by those of the next one.
	v.Store = "2"
	s.installed(t, v)
	s.mustBeRunning(t, "1", "2")
}

func rollsBackMigration(t *testing.T, s *scenario) {
	s.installed(t, good())
	v := good()
	v.Migration, v.Web = "fails", "2"
	_, err := Install(t.Context(), s.release(t, v), s.options())
	var unready *NotReadyError
	if !errors.As(err, &unready) || unready.Within != 0 || len(unready.Objects) != 1 || unready.Objects[0].Object != "Job "+s.namespace+"/migration" {
		t.Fatalf("got %v", err)
	}
	s.mustBeRunning(t, "1", "1")
	if states := s.revisions(t); states != "superseded failed deployed" {
		t.Errorf("the revisions are %s", states)
	}
}

func keepsFirst(t *testing.T, s *scenario) {
	v := good()
	v.Migration = "fails"
	if _, err := Install(t.Context(), s.release(t, v), s.options()); err == nil || strings.Contains(err.Error(), "rolled back") {
		t.Fatalf("got %v", err)
	}
	if states := s.revisions(t); states != "failed" {
		t.Errorf("the revisions are %s", states)
	}
	s.installed(t, good())
	s.mustBeRunning(t, "1", "1")
}

// interrupted starts an installation that cannot become ready, and ends its context when the Deployment has its image. The release is then
// as after a kill, because no request is sent after the end of the context.
func (s *scenario) interrupted(t *testing.T, v shopValues) {
	t.Helper()
	v.Web = "missing"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := must.Get(s.Client.CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{}))(t)
	release := s.release(t, v)
	done := make(chan error)
	go func() {
		_, err := Install(ctx, release, s.options())
		done <- err
	}()
	for event := range events.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if isPod && event.Type != watch.Deleted && strings.HasSuffix(pod.Spec.Containers[0].Image, "web:missing") {
			cancel()
			break
		}
	}
	events.Stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	states := strings.Fields(s.revisions(t))
	if last := states[len(states)-1]; !pending(last) {
		t.Fatalf("the interrupted revision is %s", last)
	}
}

func continuesInstallation(t *testing.T, s *scenario) {
	s.interrupted(t, good())
	s.installed(t, good())
	s.mustBeRunning(t, "1", "1")
	// Helm supersedes the interrupted revision. It must not become the target of a rollback.
	if states := s.revisions(t); states != "superseded deployed" {
		t.Errorf("the revisions are %s", states)
	}
	interrupted := good()
	interrupted.Web = "missing"
	content := must.Get(Content(s.release(t, interrupted)))(t)
	if _, err := Rollback(t.Context(), "shop", s.namespace, content, s.options()); err == nil || !strings.Contains(err.Error(), "was deployed") {
		t.Errorf("got %v", err)
	}
}

func continuesUpgrade(t *testing.T, s *scenario) {
	s.installed(t, good())
	v := good()
	v.Web, v.Colour, v.Extra = "missing", "blue", "new"
	s.interrupted(t, v)
	s.readyWithin = time.Minute
	// The same content, which cannot become ready, is upgraded to and rolled back.
	if _, err := Install(t.Context(), s.release(t, v), s.options()); err == nil || !strings.Contains(err.Error(), "rolled back to revision 1") {
		t.Fatalf("got %v", err)
	}
	s.mustBeRunning(t, "1", "1")
	if states := s.revisions(t); states != "superseded failed failed deployed" {
		t.Errorf("the revisions are %s", states)
	}
	if names := s.configMaps(t); names != "settings" {
		t.Errorf("after the rollback there are the ConfigMaps %s", names)
	}
}

func removesInterrupted(t *testing.T, s *scenario) {
	s.installed(t, good())
	v := good()
	v.Extra = "new"
	s.interrupted(t, v)
	if names := s.configMaps(t); names != "new settings" {
		t.Fatalf("the interrupted upgrade has created the ConfigMaps %s", names)
	}
	v = good()
	v.Web, v.Extra = "3", "other"
	s.installed(t, v)
	s.mustBeRunning(t, "3", "1")
	if names := s.configMaps(t); names != "other settings" {
		t.Errorf("there are the ConfigMaps %s", names)
	}
}

func rollsBackToContent(t *testing.T, s *scenario) {
	first := s.installed(t, good())
	v := good()
	v.Web = "2"
	s.installed(t, v)
	for range 2 { // the second changes nothing
		result, err := Rollback(t.Context(), "shop", s.namespace, first.Content, s.options())
		if err != nil || result.Revision != 3 {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	s.mustBeRunning(t, "1", "1")
	if _, err := Rollback(t.Context(), "shop", s.namespace, "0000", s.options()); err == nil || !strings.Contains(err.Error(), "no revision with the content 0000 was deployed") {
		t.Errorf("got %v", err)
	}
	if _, err := Rollback(t.Context(), "other", s.namespace, "0000", s.options()); err == nil || !strings.Contains(err.Error(), "is not installed") {
		t.Errorf("got %v", err)
	}
}

func refusesForeign(t *testing.T, s *scenario) {
	s.installed(t, good())
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	must.Get(s.Client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), foreign, metav1.CreateOptions{}))(t)
	v := good()
	v.Extra = "foreign"
	if _, err := Install(t.Context(), s.release(t, v), s.options()); err == nil || !strings.Contains(err.Error(), `"foreign"`) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	if states := s.revisions(t); states != "deployed" {
		t.Errorf("the revisions are %s", states)
	}
}

func refusesInvalid(t *testing.T, s *scenario) {
	s.installed(t, good())
	v := good()
	v.Colour, v.Extra = "blue", "Not A Name"
	if _, err := Install(t.Context(), s.release(t, v), s.options()); err == nil || !strings.Contains(err.Error(), "Not A Name") {
		t.Errorf("got %v", err)
	}
	settings, err := s.Client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil || settings.Data["colour"] != "red" {
		t.Errorf("the ConfigMap is %v, %v", settings, err)
	}
}

// refusesReplacement changes the storage class of a disk. The upgrade must change nothing, until the operator deletes the StatefulSet and keeps its pods.
func refusesReplacement(t *testing.T, s *scenario) {
	v := good()
	v.Disk = "slow"
	s.installed(t, v)
	v.Disk, v.Colour, v.Migration = "fast", "blue", "2"
	_, err := Install(t.Context(), s.release(t, v), s.options())
	if err == nil || !strings.Contains(err.Error(), "StatefulSet "+s.namespace+"/store: spec.volumeClaimTemplates: ") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	if states := s.revisions(t); states != "deployed" {
		t.Errorf("the revisions are %s", states)
	}
	orphan := metav1.DeletePropagationOrphan
	must.Do(t, s.Client.AppsV1().StatefulSets(s.namespace).Delete(t.Context(), "store", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	eventually.Soon(t, "the StatefulSet is deleted", func() error {
		_, err := s.Client.AppsV1().StatefulSets(s.namespace).Get(t.Context(), "store", metav1.GetOptions{})
		if err == nil {
			return errors.New("it exists")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	s.installed(t, v)
	set, err := s.Client.AppsV1().StatefulSets(s.namespace).Get(t.Context(), "store", metav1.GetOptions{})
	if err != nil || *set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName != "fast" {
		t.Errorf("the StatefulSet is %v, %v", set, err)
	}
}

func showsDifference(t *testing.T, s *scenario) {
	text, err := Diff(t.Context(), s.release(t, good()), s.options())
	if err != nil || !strings.Contains(text, "+++ Deployment web\n") || !strings.Contains(text, "--- /dev/null\n") {
		t.Errorf("before the installation: %v\n%s", err, text)
	}
	s.installed(t, good())
	if text, err = Diff(t.Context(), s.release(t, good()), s.options()); err != nil || text != "" {
		t.Errorf("the same content: %v\n%s", err, text)
	}
	v := good()
	v.Token, v.Colour = "second-secret", "blue"
	text = must.Get(Diff(t.Context(), s.release(t, v), s.options()))(t)
	for _, part := range []string{"-  colour: red\n", "+  colour: blue\n", "-  token: (hidden)\n", "+  token: (hidden, changed)\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if strings.Contains(text, "first-secret") || strings.Contains(text, "second-secret") || strings.Contains(text, "Deployment") {
		t.Errorf("the difference has secrets or objects without one:\n%s", text)
	}
	if states := s.revisions(t); states != "deployed" {
		t.Errorf("the revisions are %s", states)
	}
}
