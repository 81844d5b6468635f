package deployment

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// repository is the root of the repository, whose configuration the test changes.
const repository = "../../../.."

// TestConfigurationMistakesAreFound appends a mistake to a file of each layer, and expects the error that docs/deploy/configuration.md
// shows or one like it.
func TestConfigurationMistakesAreFound(t *testing.T) {
	reported := map[string]bool{}
	for reason, c := range map[string]struct{ file, text, want string }{
		"an unknown key in the defaults":   {"defaults.yaml", "extra: {a: 1}", "defaults.yaml:LAST: extra: unknown key; known keys are"},
		"a wrong value in the defaults":    {"defaults.yaml", "logLevel: verbose", "defaults.yaml:LAST: logLevel: value must be one of 'debug', 'info', 'warn', 'error' (layer defaults)"},
		"a wrong type in a cloud":          {"clouds/usgov.yaml", "telemetry: {traceRatio: all}", "clouds/usgov.yaml:LAST: telemetry.traceRatio: is a string; it must be a number (layer cloud usgov)"},
		"a misspelt key in an environment": {"clouds/public/int.yaml", "backend: {replcas: 3}", "clouds/public/int.yaml:LAST: backend.replcas: unknown key; did you mean replicas? (layer environment public/int)"},
		"a wrong certificate in a region":  {"clouds/public/int/uksouth.yaml", "ingress: {arm: {certificate: {dnsName: rp.other.example}}}", "clouds/public/int/uksouth.yaml:LAST: ingress.arm.certificate.dnsName: breaks the rule arm-certificate-for-host"},
		"a wrong zone in a region":         {"clouds/public/int/uksouth.yaml", "dns: {zone: uks.other.example}", "clouds/public/int/uksouth.yaml:LAST: dns.zone: breaks the rule zone-in-parent-zone"},
		"a wrong value in a stamp":         {"clouds/public/int/uksouth/1.yaml", "managementCluster: {network: {pods: 10.0.0.0/22}}", "managementCluster.network: breaks the rule management-network"},
		"a region's key in a stamp":        {"clouds/public/int/uksouth/1.yaml", "frontend: {replicas: 5}", "clouds/public/int/uksouth/1.yaml:LAST: frontend.replicas: may be set for a region and outside of it, but not for a stamp"},
		"a cloud's key in a region":        {"clouds/public/int/uksouth.yaml", "endpoints: {azureCloud: AzurePublicCloud}", "endpoints.azureCloud: may be set for a cloud and outside of it, but not for a region"},
		"a secret in a region":             {"clouds/public/int/uksouth.yaml", "frontend: {credentialKey: c2VjcmV0}", "clouds/public/int/uksouth.yaml:LAST: frontend.credentialKey: is a secret: it needs a reference"},
		"a missing secret":                 {"clouds/public/int/uksouth.yaml", "frontend: {credentialKey: null}", "clouds/public/int/uksouth.yaml: frontend.credentialKey: is required, and no layer sets it (layer region public/int/uksouth)"},
		"a deletion of nothing":            {"clouds/public/int/uksouth.yaml", "backend: {other: null}", "backend.other: unknown key"},
		"a vault of another region":        {"clouds/public/int/uksouth.yaml", "keyVaults: {service: hcpm-prod-uks-svc}", "keyVaults.service: hcpm-prod-uks-svc of public/prod/uksouth is also the value of public/int/uksouth"},
		"a production without zones":       {"clouds/public/prod/westus3.yaml", "availabilityZones: [\"1\"]", "breaks the rule production-zones"},
		"keys of two modes":                {"clouds/public/int.yaml", "frontend: {authentication: {mode: token}}", "frontend.authentication.audience: is required"},
		"admin from everywhere":            {"clouds/public/int.yaml", "ingress: {admin: {sources: [\"0.0.0.0/0\"]}}", "ingress.admin.sources: breaks the rule admin-sources"},
		"a portal without its certificate": {"clouds/public/int.yaml", "pipelines: {without: [region/certificate-portal]}", "admin.portal: breaks the rule portal-complete"},
		"a portal that admin refuses":      {"clouds/public/int/uksouth.yaml", "admin: {authentication: {clientIds: [d6f3a1f2-6f5b-4b35-9f0e-1c64a1f5c3aa]}}", "admin.portal: breaks the rule portal-application"},
		"a frontend without MISE":          {"clouds/public/int.yaml", "mise: null", "mise: breaks the rule mise-complete"},
		"MISE that nobody asks":            {"clouds/public/dev.yaml", "pipelines: {without: []}", "mise: breaks the rule mise-complete"},
		"another service in MISE's place":  {"clouds/public/int.yaml", "frontend: {authentication: {checkUrl: \"http://other.mise.svc:8080/ValidateRequest\"}}", "frontend.authentication: breaks the rule mise-check-url"},
		"one pod of MISE in production":    {"clouds/public/prod.yaml", "mise: {replicas: 1}", "production: breaks the rule production-replicas"},
		"a limit below MISE's request":     {"clouds/public/int.yaml", "mise: {resources: {memoryLimitMiB: 128}}", "ingress.gateway.resources: breaks the rule memory-limits"},
		"an egress gateway without chart":  {"clouds/public/int.yaml", "pipelines: {without: [gateway-egress/deploy]}", "gatewayEgress: breaks the rule gateway-egress-complete"},
		"an approval that Azure ignores":   {"clouds/public/int.yaml", "gatewayEgress: {privateLink: {visibility: [00000000-0000-4000-8000-000000000001], autoApproval: [00000000-0000-4000-8000-000000000001]}}", "gatewayEgress: breaks the rule gateway-egress-approval"},
		"one link with all connections":    {"clouds/public/int.yaml", "gatewayEgress: {connectionsPerLink: 20000}", "gatewayEgress: breaks the rule gateway-egress-limits"},
		"sessions at the origin of admin":  {"clouds/public/int.yaml", "gatewayAccess: {endpoint: \"https://${ingress.admin.host}\"}", "clouds/public/int.yaml:LAST: gatewayAccess.endpoint: breaks the rule gateway-access-endpoint"},
		"a release without a mirror":       {"clouds/public/int.yaml", "registry: {releases: [\"quay.io/other/release@sha256:" + strings.Repeat("a", 64) + "\"]}", "clouds/public/int.yaml:LAST: registry.releases: breaks the rule release-has-mirror"},
		"a part of Azure's left out":       {"clouds/public/int.yaml", "pipelines: {without: [admin]}", "clouds/public/int.yaml:LAST: pipelines.without: breaks the rule pipelines-complete"},
		"a part of a region left out":      {"clouds/public/int/uksouth.yaml", "pipelines: {without: [admin]}", "pipelines.without: may be set for an environment and outside of it, but not for a region"},
		"too many sessions":                {"clouds/public/int.yaml", "maestro: {server: {replicas: 9}}", "eventGrid.sessionsPerClient: breaks the rule mqtt-sessions"},
		"a password in a database's URL":   {"clouds/public/int.yaml", "clusterService: {databaseOwnerUrl: \"postgres://owner:hunter2@db.example.com/fleet?sslmode=verify-full\"}", "clouds/public/int.yaml:LAST: clusterService.databaseOwnerUrl: "},
		"a database that is not verified":  {"clouds/public/int.yaml", "clusterService: {databaseUrl: \"postgres://cluster_service@${postgres.clusterService.server}.${endpoints.postgresSuffix}/fleet?sslmode=require\"}", "clusterService.databaseUrl: "},
		"a certificate for Azure's server": {"clouds/public/int.yaml", "clusterService: {databaseAuthentication: certificate}", "clusterService.databaseAuthentication: breaks the rule cluster-service-database-authentication"},
		"a token for a foreign server":     {"clouds/public/int.yaml", "clusterService: {databaseUrl: \"postgres://cluster_service@db.example.com/fleet?sslmode=verify-full\"}", "breaks the rule cluster-service-database-server"},
		"a database that nobody creates":   {"clouds/public/int.yaml", "maestro: {server: {databaseOwnerUrl: \"postgres://maestro_owner@${postgres.maestro.server}.${endpoints.postgresSuffix}/other?sslmode=verify-full\"}}", "breaks the rule maestro-database-server"},
		"a service that owns its tables":   {"clouds/public/int.yaml", "clusterService: {databaseRole: cluster_service_owner}", "breaks the rule cluster-service-database-roles"},
		"one identity for two roles":       {"clouds/public/int.yaml", "maestro: {server: {provisionIdentity: \"${maestro.server.migrationIdentity}\"}}", "breaks the rule maestro-database-identities"},
		"an unknown authentication":        {"clouds/public/int.yaml", "maestro: {server: {databaseAuthentication: password}}", "maestro.server.databaseAuthentication: "},
		"sizes with a gap":                 {"clouds/public/int/uksouth/1.yaml", "managementCluster: {hypershiftOperator: {sizes: [{name: small, maxNodes: 60, requestsInflight: 150, mutatingRequestsInflight: 50, memory: {etcd: 1Gi}}]}}", "clouds/public/int/uksouth/1.yaml:LAST: managementCluster.hypershiftOperator.sizes: breaks the rule hypershift-operator-sizes"},
		"a simulator in Azure":             {"clouds/public/int.yaml", "managementCluster: {hypershiftRuntime: {image: {registry: r.example.com, repository: r}, resources: {cpuMillicores: 100, memoryMiB: 256, memoryLimitMiB: 512}, fidelity: status, kubeAPIServer: {image: {registry: r.example.com, repository: k}}, etcd: {image: {registry: r.example.com, repository: e}}}}", "managementCluster.hypershiftRuntime: breaks the rule hypershift-runtime-platform"},
		"production that pages nobody":     {"clouds/public/prod/westus3.yaml", "telemetry: {alertReceivers: {pages: {emails: []}}}", "breaks the rule production-pages"},
		"a webhook with a secret":          {"clouds/public/int.yaml", "telemetry: {alertReceivers: {pages: {webhooks: [{name: w, endpoint: \"https://hooks.example.com/a?code=s\", objectId: 5ef6b126-3d80-5621-babb-69d461225910, identifierUri: \"api://hook\"}]}}}", "telemetry.alertReceivers.pages.webhooks"},
		"a key of etcd without a vault":    {"clouds/public/int.yaml", "keyVaults: {etcd: null}", "breaks the rule service-etcd-key"},
		"a key of etcd outside of AKS":     {"clouds/public/local/westus3/1.yaml", "managementCluster: {etcdKey: 1}", "managementCluster.etcdKey: breaks the rule management-etcd-key"},
		"certificates that nobody issues":  {"clouds/public/int.yaml", "serviceCluster: {identity: certificates}", "clouds/public/int.yaml:LAST: serviceCluster.identity: breaks the rule service-identity"},
		"sidecars without Istio":           {"clouds/public/local.yaml", "serviceCluster: {platform: kubernetes, identity: mesh}", "clouds/public/local.yaml:LAST: serviceCluster.identity: breaks the rule service-identity"},
		"too many connections":             {"clouds/public/int.yaml", "clusterService: {databaseConnections: 100}", "postgres.clusterService.maxConnections: breaks the rule cluster-service-database-connections"},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "config")
			must.Do(t, os.CopyFS(dir, os.DirFS(filepath.Join(repository, "config"))))
			file := filepath.Join(dir, filepath.FromSlash(c.file))
			text := must.Get(os.ReadFile(file))(t)
			key, _, _ := strings.Cut(c.text, ":")
			text = regexp.MustCompile(`(?m)^`+key+`:.*\n(?:[ -].*\n|\n)*`).ReplaceAll(text, nil) // the appended key replaces it
			text = append(text, "\n"+c.text+"\n"...)
			must.Do(t, os.WriteFile(file, text, 0o644))
			opened, err := Open(dir)
			if err == nil {
				_, err = opened.CheckAll()
			}
			want := strings.ReplaceAll(c.want, "LAST", fmt.Sprint(strings.Count(string(text), "\n")))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v\nwant %s", err, want)
			}
			for line := range strings.Lines(strings.ReplaceAll(err.Error(), filepath.ToSlash(dir), "config")) {
				reported[withoutLineNumbers(line)] = true
			}
		})
	}
	text := must.Get(os.ReadFile(filepath.Join(repository, "docs/deploy/configuration.md")))(t)
	_, text, _ = bytes.Cut(text, []byte("## Errors"))
	documented := regexp.MustCompile(`(?m)^    (config/.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(documented) < 5 {
		t.Errorf("docs/deploy/configuration.md shows only %d errors", len(documented))
	}
	for _, level := range []string{"defaults", "cloud ", "environment ", "region ", "stamp "} {
		if !slices.ContainsFunc(documented, func(line []string) bool { return strings.Contains(line[1], "(layer "+level) }) {
			t.Errorf("docs/deploy/configuration.md shows no error of the layer %s", level)
		}
	}
	for _, line := range documented {
		if !reported[withoutLineNumbers(line[1])] {
			t.Errorf("docs/deploy/configuration.md shows an error that no mistake of this test causes: %s", line[1])
		}
	}
}

var lineNumber = regexp.MustCompile(`\.yaml:\d+`)

func withoutLineNumbers(line string) string {
	return strings.TrimSpace(lineNumber.ReplaceAllString(line, ".yaml"))
}
