package readyourwrites

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// lagging is a server with a cache that shows what it was last given to see.
type lagging struct {
	client.Client
	shown *corev1.ConfigMap
	// unanswered has the next write take place, or not, without an answer.
	unanswered, lost bool
	reads            int // past the cache
}

func (l *lagging) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.shown.DeepCopyInto(object.(*corev1.ConfigMap))
	return nil
}

func (l *lagging) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if l.lost {
		return errors.New("connection refused")
	}
	if l.unanswered {
		object = object.DeepCopyObject().(client.Object)
	}
	err := l.Client.Update(ctx, object, opts...)
	if l.unanswered && err == nil {
		return errors.New("unexpected EOF")
	}
	return err
}

// catchUp has the cache see what there is.
func (l *lagging) catchUp(t *testing.T) {
	t.Helper()
	l.shown = &corev1.ConfigMap{}
	if err := l.Client.Get(t.Context(), key, l.shown); err != nil {
		t.Fatal(err)
	}
}

type live struct{ l *lagging }

func (v live) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	v.l.reads++
	return v.l.Client.Get(ctx, key, object, opts...)
}

func (v live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return v.l.Client.List(ctx, list, opts...)
}

var key = client.ObjectKey{Namespace: "ns", Name: "one"}

func start(t *testing.T) (*lagging, *Client) {
	t.Helper()
	l := &lagging{Client: fake.NewClientBuilder().Build()}
	c := New(l, live{l})
	first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid"}}
	if err := c.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	l.catchUp(t)
	return l, c
}

func read(t *testing.T, c *Client) (*corev1.ConfigMap, error) {
	t.Helper()
	var object corev1.ConfigMap
	err := c.Get(t.Context(), key, &object)
	if err != nil && !apierrors.IsConflict(err) {
		t.Fatalf("reading: %v", err)
	}
	return &object, err
}

func set(t *testing.T, c *Client, object *corev1.ConfigMap, value string) error {
	t.Helper()
	object = object.DeepCopy()
	object.Data = map[string]string{"value": value}
	return c.Update(t.Context(), object)
}

func TestNothingOlderThanTheLastWriteIsRead(t *testing.T) {
	t.Parallel()
	l, c := start(t)
	object, err := read(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := set(t, c, object, "2"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, c); err == nil {
		t.Error("a cache that is behind was believed")
	}
	// What others read is theirs to judge.
	if err := c.CheckCurrent(t.Context(), object); !apierrors.IsConflict(err) {
		t.Errorf("an old object passes as the newest: %v", err)
	}
	l.catchUp(t)
	object, err = read(t, c)
	if err != nil || object.Data["value"] != "2" {
		t.Errorf("read %v, %v", object.Data, err)
	}
	if len(c.written) > 0 {
		t.Errorf("what the cache has seen is still remembered: %v", c.written)
	}
	// A write of somebody else is newer than ours.
	if err := set(t, c, object, "3"); err != nil {
		t.Fatal(err)
	}
	l.catchUp(t)
	object = l.shown.DeepCopy()
	object.Data["value"] = "4"
	if err := l.Client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	l.catchUp(t)
	if object, err = read(t, c); err != nil || object.Data["value"] != "4" {
		t.Errorf("read %v, %v", object.Data, err)
	}
	if l.reads > 0 {
		t.Errorf("%d reads past the cache, though every write was answered", l.reads)
	}
}

func TestRefusedWriteIsForgotten(t *testing.T) {
	t.Parallel()
	l, c := start(t)
	object := l.shown.DeepCopy()
	object.ResourceVersion = "999999"
	if err := set(t, c, object, "2"); !apierrors.IsConflict(err) {
		t.Fatalf("a write of what nobody has read: %v", err)
	}
	if _, err := read(t, c); err != nil || l.reads > 0 {
		t.Errorf("%v, after %d reads past the cache", err, l.reads)
	}
}

func TestUnansweredWriteIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]bool{"it took place": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := start(t)
			object, err := read(t, c)
			if err != nil {
				t.Fatal(err)
			}
			l.unanswered, l.lost = took, !took
			if set(t, c, object, "2") == nil {
				t.Fatal("it was answered")
			}
			for range 3 {
				if _, err := read(t, c); (err != nil) != took {
					t.Errorf("the cache does not show it: %v", err)
				}
			}
			l.catchUp(t)
			if _, err := read(t, c); err != nil {
				t.Error(err)
			}
			if l.reads != 1 {
				t.Errorf("%d reads past the cache, want 1", l.reads)
			}
		})
	}
}

// TestARestoredServerIsBelieved is named after what went wrong: after a management cluster was restored from a backup no pass was
// made over objects that had been written since, for the versions that they had then never came again.
func TestARestoredServerIsBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, c := start(t)
		if _, err := read(t, c); err != nil {
			t.Fatal(err)
		}
		c.recordWrite(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "999999"}})
		if _, err := read(t, c); err == nil {
			t.Error("a cache that is behind was believed")
		}
		time.Sleep(maxCacheLag + 1)
		if _, err := read(t, c); err != nil || l.reads != 1 {
			t.Errorf("%v, after %d reads past the cache", err, l.reads)
		}
	})
}

func TestWritesOfObjectsThatAreNotReadAgainAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t)
		note := func(from, to int) {
			for i := from; i < to; i++ {
				c.recordWrite(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), ResourceVersion: "7"}})
			}
		}
		note(0, minSweep)
		if len(c.written) <= minSweep {
			t.Fatalf("%d are remembered; want the %d that are new, and the first", len(c.written), minSweep+1)
		}
		time.Sleep(retention + 1)
		note(minSweep, 3*minSweep)
		if len(c.written) > 2*minSweep+1 {
			t.Errorf("%d are remembered of objects that were not read for longer than %s", len(c.written), retention)
		}
	})
}
