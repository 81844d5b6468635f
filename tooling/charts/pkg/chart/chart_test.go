package chart_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// frontend returns the frontend's chart and its values in one region, as a map.
func frontend(t *testing.T) (*chart.Chart, map[string]any) {
	t.Helper()
	w, _ := workload.Find("frontend")
	loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), w.Folder)))(t)
	computed := must.Get(values.Of(w, target(t, reference)))(t)
	return loaded, plain(t, computed)
}

func plain(t *testing.T, v any) map[string]any {
	t.Helper()
	encoded := must.Get(json.Marshal(v))(t)
	var copied map[string]any
	must.Do(t, json.Unmarshal(encoded, &copied))
	return copied
}

// TestWrongValuesAreRefused changes one value at a time. The errors name the key.
func TestWrongValuesAreRefused(t *testing.T) {
	loaded, correct := frontend(t)
	must.Get(loaded.Render("frontend", correct))(t)
	for name, c := range map[string]struct {
		path  string
		value any
		want  string
	}{
		"an unknown key":          {"replica", 2, "additional properties 'replica' not allowed"},
		"an unknown inner key":    {"image.tag", "latest", "at '/image': additional properties 'tag' not allowed"},
		"an unknown flag":         {"flags.lisen", "x", "at '/flags': additional properties 'lisen' not allowed"},
		"a missing digest":        {"image.digest", nil, "at '/image': missing property 'digest'"},
		"an empty digest":         {"image.digest", "", "at '/image/digest'"},
		"a tag as digest":         {"image.digest", "latest", "at '/image/digest'"},
		"an empty repository":     {"image.repository", "", "at '/image/repository'"},
		"no client ID":            {"identity.clientId", "", "at '/identity/clientId'"},
		"no replicas":             {"replicas", 0, "at '/replicas'"},
		"a text as number":        {"replicas", "two", "at '/replicas': got string, want integer"},
		"an empty flag":           {"flags.location", "", "at '/flags/location'"},
		"another provider":        {"secrets.provider", "file", "at '/secrets/provider'"},
		"a wrong address range":   {"network.privateEndpoints.cidr", "10.0.0.0", "at '/network/privateEndpoints/cidr'"},
		"a client without ports":  {"network.clients", []any{map[string]any{"namespace": "a", "ports": []any{}}}, "at '/network/clients/0/ports'"},
		"a port that is not open": {"network.clients", []any{map[string]any{"namespace": "a", "ports": []any{"grpc"}}}, "network.clients: the program has no port grpc"},
	} {
		changed := plain(t, correct)
		at, keys := changed, strings.Split(c.path, ".")
		for _, key := range keys[:len(keys)-1] {
			at = at[key].(map[string]any)
		}
		if at[keys[len(keys)-1]] = c.value; c.value == nil {
			delete(at, keys[len(keys)-1])
		}
		if _, err := loaded.Render("frontend", changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestAnotherNamespaceIsRefused(t *testing.T) {
	loaded, correct := frontend(t)
	if _, err := loaded.Render("default", correct); err == nil || !strings.Contains(err.Error(), "needs the namespace frontend") {
		t.Errorf("got %v", err)
	}
}

// TestSecretsCanComeFromKubernetes renders with the provider that needs no secrets store driver.
func TestSecretsCanComeFromKubernetes(t *testing.T) {
	loaded, v := frontend(t)
	v["secrets"].(map[string]any)["provider"] = values.Secret
	objects := must.Get(loaded.Render("frontend", v))(t)
	all := text(t, objects)
	if strings.Contains(all, "SecretProviderClass") || !strings.Contains(all, "secretName: frontend-keys") {
		t.Error("the pods do not use the Secret frontend-keys")
	}
}

// target returns the target with a name.
func target(t *testing.T, name string) values.Target {
	t.Helper()
	for _, target := range charttest.Targets(t) {
		if target.Name == name {
			return target
		}
	}
	t.Fatalf("no target %s", name)
	return values.Target{}
}

// TestJobsOfCertificates renders Cluster Service for a server that authenticates client certificates. Nothing in the cluster provisions it.
func TestJobsOfCertificates(t *testing.T) {
	w, _ := workload.Find("cluster-service")
	var jobs chart.Objects
	for _, object := range charttest.Render(t, w, target(t, "public/local/westus3")) {
		if strings.Contains(object.GetName(), "provision") {
			t.Errorf("there is a %s %s", object.GetKind(), object.GetName())
		}
		if object.GetKind() == "Job" {
			jobs = append(jobs, object)
		}
	}
	job := text(t, jobs)
	for _, want := range []string{"- --database-authentication=certificate\n", "- --identity-dir=/identity\n", "secretName: cluster-service-migration-identity\n"} {
		if !strings.Contains(job, want) {
			t.Errorf("the jobs have no %s:\n%s", want, job)
		}
	}
}

// TestWrongJobsAreRefused changes values with which a job would not start, or would log in as another role.
func TestWrongJobsAreRefused(t *testing.T) {
	w, _ := workload.Find("cluster-service")
	correct := target(t, reference)
	loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), w.Folder)))(t)
	for reason, c := range map[string]struct {
		job, flag, value, want string
	}{
		"a password":             {"migration", "database-url", "postgres://owner:hunter2@db.example.com/fleet?sslmode=verify-full", "at '/migration/flags/database-url'"},
		"an unverified server":   {"migration", "database-url", "postgres://owner@db.example.com/fleet?sslmode=require", "at '/migration/flags/database-url'"},
		"passwords":              {"migration", "database-authentication", "password", "at '/migration/flags/database-authentication'"},
		"no identity of a role":  {"provision", "owner-object-id", "", "at '/provision/flags/owner-object-id'"},
		"certificates of admins": {"provision", "database-authentication", "certificate", "at '/provision/flags/database-authentication'"},
	} {
		v := must.Get(values.Of(w, correct))(t)
		map[string]*values.DatabaseJob{"migration": v.Migration, "provision": v.Provision}[c.job].Flags[c.flag] = c.value
		if _, err := loaded.Render(string(w.Peer), v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	correct.ObjectIDs = nil
	if _, err := values.Of(w, correct); err == nil || !strings.Contains(err.Error(), "the object ID of the managed identity cluster-service-migration-prod-uks is missing") {
		t.Errorf("without object IDs: %v", err)
	}
}

// TestMissingOutputsAreErrors computes values without a digest, and without the outputs of the infrastructure.
func TestMissingOutputsAreErrors(t *testing.T) {
	w, _ := workload.Find("frontend")
	c := charttest.Configuration(t)
	for _, name := range c.Targets(nil) {
		if name.String() != reference {
			continue
		}
		rendered := must.Get(c.Render(name))(t)
		complete := charttest.Complete(name, c.Schema, rendered)
		withoutDigest := complete
		withoutDigest.Configuration = rendered
		if _, err := values.Of(w, withoutDigest); rendered.Get("frontend", "image", "digest") == nil &&
			(err == nil || !strings.Contains(err.Error(), "frontend.image.digest: is required for a deployment, and no layer sets it")) {
			t.Errorf("without a digest: %v", err)
		}
		withoutOutputs := complete
		withoutOutputs.ClientIDs = nil
		if _, err := values.Of(w, withoutOutputs); err == nil || !strings.Contains(err.Error(), "managed identity frontend-prod-uks is missing") {
			t.Errorf("without outputs: %v", err)
		}
	}
}
