package installation

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// fieldManager is the owner of the fields that this package applies.
const fieldManager = "hcpmesh-installation"

// The pauses before a copy that failed is repeated.
const firstPause, lastPause = 100 * time.Millisecond, 10 * time.Second

// errNoPair means that a certificate has another key. During a renewal, the event of the second file follows.
var errNoPair = errors.New("the files are no pair")

// Secrets keeps Secrets equal to files of the machine, so that the authority of a region renews the certificates of pods by replacing
// files. Programs read the files of their Secrets again when they change. It is safe for concurrent use.
type Secrets struct {
	client  clientset.Interface
	log     *slog.Logger
	files   *fsnotify.Watcher
	stop    context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// kept are the files of each Secret, by key.
	kept map[types.NamespacedName]map[string]string
}

// KeepSecrets starts to keep Secrets of a cluster. The caller closes the result.
func KeepSecrets(ctx context.Context, client clientset.Interface, log *slog.Logger) (*Secrets, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Secrets{client: client, log: log, files: files, stop: stop, kept: map[types.NamespacedName]map[string]string{}}
	s.running.Go(func() { s.follow(ctx) })
	return s, nil
}

// Close ends the copies. The Secrets remain.
func (s *Secrets) Close() error {
	s.stop()
	err := s.files.Close()
	s.running.Wait()
	return err
}

// Keep creates or replaces a Secret with the content of files, by key, and replaces it when a file changes. If it returns an error, it
// keeps nothing. The keys tls.crt and tls.key are those of a certificate: a renewal replaces two files, and Secrets never have one of the new
// files with one of the old ones, with which a pod could not start.
func (s *Secrets) Keep(ctx context.Context, namespace, name string, files map[string]string) error {
	for _, file := range files {
		// Files are replaced by renaming, so the folder is watched.
		if err := s.files.Add(filepath.Dir(file)); err != nil {
			return fmt.Errorf("watching %s: %w", file, err)
		}
	}
	id := types.NamespacedName{Namespace: namespace, Name: name}
	s.mu.Lock()
	s.kept[id] = maps.Clone(files)
	s.mu.Unlock()
	err := s.copy(ctx, id)
	if err != nil {
		s.mu.Lock()
		delete(s.kept, id)
		s.mu.Unlock()
	}
	return err
}

// copy applies the Secret with the current content of its files.
func (s *Secrets) copy(ctx context.Context, id types.NamespacedName) error {
	s.mu.Lock()
	defer s.mu.Unlock() // an older content must not replace a newer one
	files, kept := s.kept[id]
	if !kept {
		return nil
	}
	data := map[string][]byte{}
	for key, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("secret %s: %w", id, err)
		}
		data[key] = content
	}
	if certificate, key := data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]; certificate != nil && key != nil {
		if _, err := tls.X509KeyPair(certificate, key); err != nil {
			return fmt.Errorf("secret %s: %w: %s and %s: %w", id, errNoPair, files[corev1.TLSCertKey], files[corev1.TLSPrivateKeyKey], err)
		}
	}
	wanted := applycorev1.SecretApplyConfiguration{
		TypeMetaApplyConfiguration:   *applymetav1.TypeMeta().WithKind("Secret").WithAPIVersion("v1"),
		ObjectMetaApplyConfiguration: applymetav1.ObjectMeta().WithName(id.Name).WithNamespace(id.Namespace),
		Data:                         data,
	}
	secretType := corev1.SecretTypeOpaque
	wanted.Type = &secretType
	_, err := s.client.CoreV1().Secrets(id.Namespace).Apply(ctx, &wanted, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("applying secret %s: %w", id, err)
	}
	return nil
}

// follow copies the Secrets with files in a folder that changed. A copy that fails is repeated.
func (s *Secrets) follow(ctx context.Context) {
	pauses := backoff.New(firstPause, lastPause)
	stale := map[types.NamespacedName]bool{}
	var retry <-chan time.Time
	for {
		repeated := false
		select {
		case <-ctx.Done():
			return
		case event, open := <-s.files.Events:
			if !open {
				return
			}
			s.markStale(stale, func(file string) bool { return file == event.Name })
		case err, open := <-s.files.Errors:
			if !open {
				return
			}
			// Events can be lost.
			s.log.WarnContext(ctx, "watching the files of secrets failed; reading all of them", logkey.Error, err)
			s.markStale(stale, func(string) bool { return true })
		case <-retry:
			repeated = true
		}
		retry = nil
		for id := range stale {
			err := s.copy(ctx, id)
			if err == nil {
				delete(stale, id)
				continue
			}
			if !errors.Is(err, context.Canceled) && (repeated || !errors.Is(err, errNoPair)) {
				s.log.WarnContext(ctx, "a secret was not renewed", logkey.Error, err)
			}
		}
		if len(stale) > 0 {
			retry = time.After(pauses.Next())
		} else {
			pauses.Reset()
		}
	}
}

// markStale adds the Secrets with a file that changed.
func (s *Secrets) markStale(stale map[types.NamespacedName]bool, changed func(file string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, files := range s.kept {
		if slices.ContainsFunc(slices.Collect(maps.Values(files)), changed) {
			stale[id] = true
		}
	}
}

// trust creates or replaces the ConfigMap with the certificate authorities that the programs of a namespace trust besides those of their
// images, in PEM by the name of the file.
func (s *Secrets) trust(ctx context.Context, namespace string, authorities map[string]string) error {
	configuration := applycorev1.ConfigMap(values.AuthoritiesName, namespace).WithData(authorities)
	if _, err := s.client.CoreV1().ConfigMaps(namespace).Apply(ctx, configuration, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("applying the authorities of %s: %w", namespace, err)
	}
	return nil
}
