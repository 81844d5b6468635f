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

// laggingCache is a server with a cache that returns a stored object until catchUp is called.
type laggingCache struct {
	client.Client
	cached *corev1.ConfigMap
	// noResponse makes writes succeed without a response. notSent makes writes fail without reaching the server.
	noResponse, notSent bool
	reads               int // number of reads past the cache
}

func (l *laggingCache) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.cached.DeepCopyInto(object.(*corev1.ConfigMap))
	return nil
}

func (l *laggingCache) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if l.notSent {
		return errors.New("connection refused")
	}
	if l.noResponse {
		object = object.DeepCopyObject().(client.Object)
	}
	err := l.Client.Update(ctx, object, opts...)
	if l.noResponse && err == nil {
		return errors.New("unexpected EOF")
	}
	return err
}

// catchUp updates the cache.
func (l *laggingCache) catchUp(t *testing.T) {
	t.Helper()
	l.cached = &corev1.ConfigMap{}
	if err := l.Client.Get(t.Context(), key, l.cached); err != nil {
		t.Fatal(err)
	}
}

type live struct{ l *laggingCache }

func (v live) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	v.l.reads++
	return v.l.Client.Get(ctx, key, object, opts...)
}

func (v live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return v.l.Client.List(ctx, list, opts...)
}

var key = client.ObjectKey{Namespace: "ns", Name: "one"}

func start(t *testing.T) (*laggingCache, *Client) {
	t.Helper()
	l := &laggingCache{Client: fake.NewClientBuilder().Build()}
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

func TestReadsAreNotOlderThanTheLastWrite(t *testing.T) {
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
		t.Error("a stale object was returned")
	}
	// An object that was read by other means is checked with CheckCurrent.
	if err := c.CheckCurrent(t.Context(), object); !apierrors.IsConflict(err) {
		t.Errorf("an outdated object was accepted as current: %v", err)
	}
	l.catchUp(t)
	object, err = read(t, c)
	if err != nil || object.Data["value"] != "2" {
		t.Errorf("read %v, %v", object.Data, err)
	}
	if len(c.written) > 0 {
		t.Errorf("writes that the cache contains are still tracked: %v", c.written)
	}
	// A write of another client is newer than our own.
	if err := set(t, c, object, "3"); err != nil {
		t.Fatal(err)
	}
	l.catchUp(t)
	object = l.cached.DeepCopy()
	object.Data["value"] = "4"
	if err := l.Client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	l.catchUp(t)
	if object, err = read(t, c); err != nil || object.Data["value"] != "4" {
		t.Errorf("read %v, %v", object.Data, err)
	}
	if l.reads > 0 {
		t.Errorf("%d reads past the cache, although every write had a response", l.reads)
	}
}

func TestRejectedWriteIsNotTracked(t *testing.T) {
	t.Parallel()
	l, c := start(t)
	object := l.cached.DeepCopy()
	object.ResourceVersion = "999999"
	if err := set(t, c, object, "2"); !apierrors.IsConflict(err) {
		t.Fatalf("a write with an unknown version: %v", err)
	}
	if _, err := read(t, c); err != nil || l.reads > 0 {
		t.Errorf("%v, after %d reads past the cache", err, l.reads)
	}
}

func TestWriteWithoutResponseIsChecked(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]bool{"Written": true, "NotWritten": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := start(t)
			object, err := read(t, c)
			if err != nil {
				t.Fatal(err)
			}
			l.noResponse, l.notSent = took, !took
			if set(t, c, object, "2") == nil {
				t.Fatal("the write has a response")
			}
			for range 3 {
				if _, err := read(t, c); (err != nil) != took {
					t.Errorf("reading with a stale cache: %v", err)
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

// TestRestoredServerIsAccepted is a regression test: after a management cluster was restored from a backup, no pass was
// made for objects that had been written since the backup, because their versions never occurred again.
func TestRestoredServerIsAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, c := start(t)
		if _, err := read(t, c); err != nil {
			t.Fatal(err)
		}
		c.recordWrite(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "999999"}})
		if _, err := read(t, c); err == nil {
			t.Error("a stale object was returned")
		}
		time.Sleep(maxCacheLag + 1)
		if _, err := read(t, c); err != nil || l.reads != 1 {
			t.Errorf("%v, after %d reads past the cache", err, l.reads)
		}
	})
}

func TestUnreadWritesExpire(t *testing.T) {
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
			t.Fatalf("%d writes are tracked; want %d", len(c.written), minSweep+1)
		}
		time.Sleep(retention + 1)
		note(minSweep, 3*minSweep)
		if len(c.written) > 2*minSweep+1 {
			t.Errorf("%d writes are tracked, although their objects were not read for longer than %s", len(c.written), retention)
		}
	})
}
