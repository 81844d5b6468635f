package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	v1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Kubeconfig is a file to which the access to an API server is added, as `az aks get-credentials` does: the context, the cluster and the user of
// the access replace those that an earlier command has written for the same object, and all others are kept.
type Kubeconfig struct {
	// Path is the path of the file. A symbolic link is followed.
	Path string
	// Context is the name of the context and of the cluster.
	Context string
	// Object identifies what the access is for: the resource ID or the UID of a cluster, or the name of a shard. It is compared without case.
	Object string
	// Overwrite replaces the whole file, whatever it has.
	Overwrite bool
}

// objectExtension is the name of the extension that records the object of a context, cluster or user that hcpctl has written.
const objectExtension = "hcpctl"

// writtenFor is the content of the extension.
type writtenFor struct {
	Object string `json:"object"`
}

// Encode returns a kubeconfig with only the current context of another one, with the names of k.
func (k Kubeconfig) Encode(kubeconfig []byte) ([]byte, error) {
	config := api.NewConfig()
	if err := k.add(config, kubeconfig); err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

// Write adds the current context of a kubeconfig to the file and makes it the current one. A file that cannot be read, or that is not a
// kubeconfig, stays as it is. The file is locked as kubectl locks it, replaced in one step, and readable by its owner only.
func (k Kubeconfig) Write(ctx context.Context, kubeconfig []byte) error {
	path, err := followLinks(k.Path)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	// Another program may use the file by each of its names.
	unlock, err := lockAsKubectl(ctx, k.Path, path)
	if err != nil {
		return err
	}
	defer unlock()
	config := api.NewConfig()
	if !k.Overwrite {
		if config, err = readKubeconfig(path); err != nil {
			return fmt.Errorf("%w; it was not changed: choose another file, or replace it with --overwrite", err)
		}
	}
	if err := k.add(config, kubeconfig); err != nil {
		return err
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	if err := disk.Replace(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// add adds the current context of a kubeconfig, its cluster and its user to config.
func (k Kubeconfig) add(config *api.Config, kubeconfig []byte) error {
	added, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return fmt.Errorf("parsing the kubeconfig of the access: %w", err)
	}
	current := added.Contexts[added.CurrentContext]
	if current == nil || added.Clusters[current.Cluster] == nil || added.AuthInfos[current.AuthInfo] == nil {
		return errors.New("invalid kubeconfig of the access: it has no current context with a cluster and a user")
	}
	user := "hcpctl-" + k.Context
	for _, entry := range []struct {
		kind, name string
		exists     bool
		extensions map[string]runtime.Object
	}{
		{"context", k.Context, config.Contexts[k.Context] != nil, extensionsOf(config.Contexts[k.Context], func(c *api.Context) map[string]runtime.Object { return c.Extensions })},
		{"cluster", k.Context, config.Clusters[k.Context] != nil, extensionsOf(config.Clusters[k.Context], func(c *api.Cluster) map[string]runtime.Object { return c.Extensions })},
		{"user", user, config.AuthInfos[user] != nil, extensionsOf(config.AuthInfos[user], func(u *api.AuthInfo) map[string]runtime.Object { return u.Extensions })},
	} {
		if entry.exists && !k.wrote(entry.extensions) {
			return fmt.Errorf("%s has a %s %q that hcpctl did not write for this object; choose another name with --context, or replace the file with --overwrite", k.Path, entry.kind, entry.name)
		}
	}
	text, err := json.Marshal(writtenFor{k.Object})
	if err != nil {
		return err
	}
	extensions := map[string]runtime.Object{objectExtension: &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}}
	cluster, login := added.Clusters[current.Cluster], added.AuthInfos[current.AuthInfo]
	current.Cluster, current.AuthInfo = k.Context, user
	current.Extensions, cluster.Extensions, login.Extensions = extensions, extensions, extensions
	config.Contexts[k.Context], config.Clusters[k.Context], config.AuthInfos[user] = current, cluster, login
	config.CurrentContext = k.Context
	return nil
}

// extensionsOf returns the extensions of an entry; nil if there is no entry.
func extensionsOf[T any](entry *T, of func(*T) map[string]runtime.Object) map[string]runtime.Object {
	if entry == nil {
		return nil
	}
	return of(entry)
}

// wrote reports whether the extensions of an entry record that hcpctl has written it for the object.
func (k Kubeconfig) wrote(extensions map[string]runtime.Object) bool {
	recorded, ok := extensions[objectExtension].(*runtime.Unknown)
	if !ok {
		return false
	}
	var written writtenFor
	return json.Unmarshal(recorded.Raw, &written) == nil && strings.EqualFold(written.Object, k.Object)
}

// readKubeconfig reads a kubeconfig; an empty one if the file does not exist. It refuses fields that it cannot write again. Errors contain no
// values of the file.
func readKubeconfig(path string) (*api.Config, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return api.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the existing kubeconfig: %w", err)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return api.NewConfig(), nil
	}
	if err := yaml.UnmarshalStrict(content, &v1.Config{}); err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig: %w", path, err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig: %w", path, err)
	}
	return config, nil
}

// maxLinks limits a chain of symbolic links, as Linux does.
const maxLinks = 40

// followLinks returns the path of the file that a path leads to. The file need not exist, and must not be anything else than a file. As Linux does
// in folders like /tmp, it follows no link of another user, who could choose where the secret is written.
func followLinks(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", err
		case info.Mode().IsRegular():
			return path, nil
		case info.Mode().Type() != fs.ModeSymlink:
			return "", fmt.Errorf("%s is not a file", path)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Getuid() {
			return "", fmt.Errorf("the symbolic link %s belongs to another user", path)
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many symbolic links", path)
}

// The pauses between attempts to lock a file, and their number. kubectl and hcpctl hold the lock for a moment.
const (
	lockPause    = 100 * time.Millisecond
	lockAttempts = 50
)

// lockAsKubectl creates the lock file of each path, as clientcmd.ModifyConfig does, which has no exported lock. It waits for other programs in a
// sorted order, and for a limited time, because a killed program leaves its lock file.
func lockAsKubectl(ctx context.Context, paths ...string) (unlock func(), err error) {
	var locks []string
	unlock = func() {
		for _, lock := range locks {
			_ = os.Remove(lock)
		}
	}
	unique := map[string]bool{}
	for _, path := range paths {
		unique[filepath.Clean(path)+".lock"] = true
	}
	for _, lock := range slices.Sorted(maps.Keys(unique)) {
		if err := createLock(ctx, lock); err != nil {
			unlock()
			return nil, err
		}
		locks = append(locks, lock)
	}
	return unlock, nil
}

func createLock(ctx context.Context, lock string) error {
	for range lockAttempts {
		file, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return file.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("locking the kubeconfig: %w", err)
		}
		if err := backoff.Sleep(ctx, lockPause); err != nil {
			return fmt.Errorf("locking the kubeconfig: %w", err)
		}
	}
	return fmt.Errorf("the kubeconfig is locked by another program; remove %s if no kubectl and no hcpctl runs", lock)
}
