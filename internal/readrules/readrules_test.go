package readrules

import "testing"

func TestSecretsAndActionsAreNotPermitted(t *testing.T) {
	for _, r := range [][4]string{
		{"get", "", "secrets", ""}, {"list", "", "secrets", ""}, {"watch", "", "secrets", ""}, {"get", "", "pods", "exec"}, {"get", "", "pods", "attach"}, {"get", "", "pods", "portforward"},
		{"get", "", "pods", "proxy"}, {"get", "", "nodes", "proxy"}, {"get", "", "services", "proxy"}, {"create", "", "pods", ""}, {"create", "", "serviceaccounts", "token"},
		{"delete", "apps", "deployments", ""}, {"impersonate", "", "users", ""}, {"get", "oauth.openshift.io", "oauthaccesstokens", ""}, {"get", "route.openshift.io", "routes", ""},
		{"get", "machineconfiguration.openshift.io", "machineconfigs", ""}, {"get", "", "", ""}, {"get", "apps", "", ""}, {"*", "apps", "deployments", ""}, {"get", "*", "secrets", ""},
	} {
		if HostedCluster().Permits(r[0], r[1], r[2], r[3]) {
			t.Errorf("%v is permitted", r)
		}
	}
}

func TestReadsArePermitted(t *testing.T) {
	for _, r := range [][4]string{{"get", "", "pods", ""}, {"watch", "", "pods", ""}, {"get", "", "pods", "log"}, {"list", "apps", "deployments", ""}, {"get", "apps", "deployments", "scale"},
		{"get", "machineconfiguration.openshift.io", "machineconfigpools", ""}} {
		if !HostedCluster().Permits(r[0], r[1], r[2], r[3]) {
			t.Errorf("%v is not permitted", r)
		}
	}
}

func TestManagementClusterHasNoSecrets(t *testing.T) {
	rules := ManagementCluster()
	for _, r := range [][4]string{{"get", "", "secrets", ""}, {"list", "", "secrets", ""}, {"get", "", "pods", "exec"}, {"get", "work.open-cluster-management.io", "manifestworks", ""}, {"patch", "hypershift.openshift.io", "hostedclusters", ""}} {
		if rules.Permits(r[0], r[1], r[2], r[3]) {
			t.Errorf("%v is permitted", r)
		}
	}
	for _, r := range [][4]string{{"get", "", "pods", "log"}, {"watch", "hypershift.openshift.io", "hostedclusters", ""}, {"list", "cluster.x-k8s.io", "machines", ""}} {
		if !rules.Permits(r[0], r[1], r[2], r[3]) {
			t.Errorf("%v is not permitted", r)
		}
	}
	if HostedCluster().Permits("get", "hypershift.openshift.io", "hostedclusters", "") {
		t.Error("the rules of hosted clusters were changed")
	}
}
