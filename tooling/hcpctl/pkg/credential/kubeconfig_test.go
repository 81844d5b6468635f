package credential_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// access returns the kubeconfig of an access to a server, with the names that many clusters have.
func access(server string) []byte {
	return []byte(`apiVersion: v1
kind: Config
current-context: admin
clusters: [{name: cluster, cluster: {server: ` + server + `}}]
users: [{name: admin, user: {token: secret-of-` + server + `}}]
contexts: [{name: admin, context: {cluster: cluster, user: admin}}]
`)
}

const foreign = `apiVersion: v1
kind: Config
current-context: work
preferences: {}
clusters:
- name: work
  cluster: {server: "https://work.example", certificate-authority: ca.crt}
users:
- name: me
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: [a], interactiveMode: Never, provideClusterInfo: false}}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: team, extensions: [{name: other, extension: {a: b}}]}
- name: admin
  context: {cluster: cluster, user: admin}
`

// names returns the context, server and user's token of each context of a file, and its current context.
func names(t *testing.T, path string) (contexts map[string]string, current string) {
	t.Helper()
	config := must.Get(clientcmd.LoadFromFile(path))(t)
	contexts = map[string]string{}
	for name, c := range config.Contexts {
		contexts[name] = ""
		if cluster, user := config.Clusters[c.Cluster], config.AuthInfos[c.AuthInfo]; cluster != nil && user != nil {
			contexts[name] = cluster.Server + " " + user.Token
		}
	}
	return contexts, config.CurrentContext
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), mode))
}

// TestKubeconfigKeepsOtherContexts adds accesses to a kubeconfig with other contexts, and replaces one.
func TestKubeconfigKeepsOtherContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, foreign, 0o644)
	for _, k := range []struct{ context, object, server string }{
		{"demo", "/subscriptions/s/demo", "https://old.example"},
		{"two", "/subscriptions/s/two", "https://two.example"},
		{"demo", "/SUBSCRIPTIONS/s/demo", "https://new.example"},
	} {
		must.Do(t, (credential.Kubeconfig{Path: path, Context: k.context, Object: k.object}).Write(t.Context(), access(k.server)))
	}
	got, current := names(t, path)
	want := map[string]string{"work": "https://work.example ", "admin": "", "demo": "https://new.example secret-of-https://new.example", "two": "https://two.example secret-of-https://two.example"}
	if diff := cmp.Diff(want, got); diff != "" || current != "demo" {
		t.Errorf("the current context is %q; contexts (-want +got):\n%s", current, diff)
	}
	config := must.Get(clientcmd.LoadFromFile(path))(t)
	if c := config.Contexts["work"]; c.Namespace != "team" || c.Extensions["other"] == nil || config.AuthInfos["me"].Exec.Command != "login" || config.Clusters["work"].CertificateAuthority != "ca.crt" {
		t.Errorf("the other context is %+v", c)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestKubeconfigFollowsLinks writes through symbolic links, also one that leads to no file yet.
func TestKubeconfigFollowsLinks(t *testing.T) {
	for name, exists := range map[string]bool{"file": true, "no file": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target, link := filepath.Join(dir, "config"), filepath.Join(dir, "link")
			if exists {
				write(t, target, foreign, 0o644)
			}
			for link, to := range map[string]string{link: "between", filepath.Join(dir, "between"): "config"} {
				must.Do(t, os.Symlink(to, link))
			}
			must.Do(t, (credential.Kubeconfig{Path: link, Context: "demo", Object: "o"}).Write(t.Context(), access("https://a.example")))
			if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
				t.Errorf("the link is %v, %v", info.Mode(), err)
			}
			if got, current := names(t, target); current != "demo" || exists != (got["work"] != "") {
				t.Errorf("the target has %v, current %q", got, current)
			}
			if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the mode of the target is %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestKubeconfigFollowsNoLinkOfOtherUser writes through a link that another user has created, for example in /tmp.
func TestKubeconfigFollowsNoLinkOfOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can create a link of another user")
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	must.Do(t, os.Symlink("stolen", link))
	must.Do(t, os.Lchown(link, 1, 1))
	for _, overwrite := range []bool{false, true} {
		err := (credential.Kubeconfig{Path: link, Context: "demo", Overwrite: overwrite}).Write(t.Context(), access("https://a.example"))
		if err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("got %v", err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestKubeconfigIsNotDamaged writes to files that cannot be merged. They stay as they are, unless they are to be overwritten.
func TestKubeconfigIsNotDamaged(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"no YAML":         {"token: [secret", "is not a kubeconfig"},
		"another file":    {"secret: value\n", `unknown field "secret"`},
		"unknown field":   {strings.Replace(foreign, "namespace: team", "namespace: team, color: secret", 1), "color"},
		"field twice":     {foreign + "current-context: b\n", "current-context"},
		"another version": {"apiVersion: v9\nkind: Config\n", "is not a kubeconfig"},
		"foreign context": {strings.Replace(foreign, "name: admin\n", "name: demo\n", 1), `has a context "demo" that hcpctl did not write`},
		"foreign cluster": {strings.ReplaceAll(foreign, "name: work\n  cluster", "name: demo\n  cluster"), `has a cluster "demo" that hcpctl did not write`},
		"foreign user":    {strings.ReplaceAll(foreign, "name: me\n", "name: hcpctl-demo\n"), `has a user "hcpctl-demo" that hcpctl did not write`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			write(t, path, tc.content, 0o644)
			k := credential.Kubeconfig{Path: path, Context: "demo", Object: "o"}
			err := k.Write(t.Context(), access("https://a.example"))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--overwrite") || strings.Contains(err.Error(), ": secret") {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != tc.content {
				t.Errorf("the file changed: %v: %s", err, content)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("the mode is %v, %v", info.Mode(), err)
			}
			k.Overwrite = true
			must.Do(t, k.Write(t.Context(), access("https://a.example")))
			if got, current := names(t, path); len(got) != 1 || current != "demo" {
				t.Errorf("the overwritten file has %v, current %q", got, current)
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
				t.Errorf("the folder has %v, %v", entries, err)
			}
		})
	}
	if err := (credential.Kubeconfig{Path: t.TempDir(), Context: "demo", Overwrite: true}).Write(t.Context(), access("https://a.example")); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("writing to a folder: %v", err)
	}
}

// TestKubeconfigOfOtherObjectIsKept checks that the context of another cluster with the same name is not replaced.
func TestKubeconfigOfOtherObjectIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	must.Do(t, (credential.Kubeconfig{Path: path, Context: "demo", Object: "group-a/demo"}).Write(t.Context(), access("https://a.example")))
	if err := (credential.Kubeconfig{Path: path, Context: "demo", Object: "group-b/demo"}).Write(t.Context(), access("https://b.example")); err == nil || !strings.Contains(err.Error(), "--context") {
		t.Errorf("got %v", err)
	}
	if got, _ := names(t, path); !strings.HasPrefix(got["demo"], "https://a.example ") {
		t.Errorf("the file has %v", got)
	}
}

// TestKubeconfigIsLocked writes to a file that kubectl has locked, and from several writers at once.
func TestKubeconfigIsLocked(t *testing.T) {
	t.Run("by another program", func(t *testing.T) {
		dir := t.TempDir()
		path, link := filepath.Join(dir, "config"), filepath.Join(dir, "link")
		write(t, path, foreign, 0o600)
		must.Do(t, os.Symlink(path, link))
		for _, lock := range []string{path, link} {
			write(t, lock+".lock", "", 0o600)
			synctest.Test(t, func(t *testing.T) {
				err := (credential.Kubeconfig{Path: link, Context: "demo", Overwrite: true}).Write(t.Context(), access("https://a.example"))
				if err == nil || !strings.Contains(err.Error(), lock+".lock") {
					t.Errorf("got %v, want an error that names the lock of %s", err, lock)
				}
			})
			if content, err := os.ReadFile(path); err != nil || string(content) != foreign {
				t.Errorf("the file changed: %v", err)
			}
			must.Do(t, os.Remove(lock+".lock"))
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("the folder has %v, %v", entries, err)
		}
	})
	t.Run("by other writers", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config")
		servers := []string{"a", "b", "c", "d", "e", "f"}
		synctest.Test(t, func(t *testing.T) {
			var writers sync.WaitGroup
			for _, name := range servers {
				writers.Go(func() {
					if err := (credential.Kubeconfig{Path: path, Context: name, Object: name}).Write(t.Context(), access("https://"+name)); err != nil {
						t.Error(err)
					}
				})
			}
			writers.Wait()
		})
		if got, _ := names(t, path); len(got) != len(servers) {
			t.Errorf("the file has %v", got)
		}
	})
}
