package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	celenvironment "k8s.io/apiserver/pkg/cel/environment"
)

// compiler compiles the expressions of an AuthenticationConfiguration.
var compiler = authenticationcel.NewCompiler(celenvironment.MustBaseEnvSet(celenvironment.DefaultCompatibilityVersion()))

// handedOn returns an error if Kubernetes refuses what HyperShift makes of an object's content: the labels of the Machines of a node pool, and the
// ImageDigestMirrorSet and the AuthenticationConfiguration of the hosted API server.
func (r *region) handedOn(ctx context.Context, object *unstructured.Unstructured) error {
	switch object.GetKind() {
	case "NodePool":
		return machineLabels(object)
	case "HostedCluster":
		if err := r.imageMirrors(ctx, object); err != nil {
			return err
		}
		if err := networks(object); err != nil {
			return err
		}
		return authenticationConfiguration(object)
	}
	return nil
}

func machineLabels(pool *unstructured.Unstructured) error {
	labels, _, err := unstructured.NestedStringMap(pool.Object, "spec", "nodeLabels")
	if err != nil {
		return err
	}
	ofMachine := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		ofMachine["managed.hypershift.openshift.io."+key] = labels[key]
	}
	if refused := metav1validation.ValidateLabels(ofMachine, field.NewPath("metadata", "labels")); len(refused) > 0 {
		return fmt.Errorf("a Machine of the pool: %w", refused.ToAggregate())
	}
	return nil
}

func (r *region) imageMirrors(ctx context.Context, cluster *unstructured.Unstructured) error {
	sources, found, err := unstructured.NestedSlice(cluster.Object, "spec", "imageContentSources")
	if err != nil || !found {
		return err
	}
	set := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"imageDigestMirrors": sources}}}
	set.SetGroupVersionKind(configv1.GroupVersion.WithKind("ImageDigestMirrorSet"))
	set.SetName("cluster")
	mirrors := r.operator.Resource(schema.GroupVersionResource{Group: configv1.GroupName, Version: "v1", Resource: "imagedigestmirrorsets"})
	if _, err := mirrors.Create(ctx, set, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return fmt.Errorf("the ImageDigestMirrorSet of the hosted cluster: %w", err)
	}
	return nil
}

// networks returns an error if the network operator of the hosted cluster, its API server or its DNS cannot use a network.
func networks(cluster *unstructured.Unstructured) error {
	var spec struct {
		Networking struct {
			ClusterNetwork, ServiceNetwork []struct {
				CIDR       netip.Prefix
				HostPrefix int
			}
		}
	}
	text, err := json.Marshal(cluster.Object["spec"])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	for _, pods := range spec.Networking.ClusterNetwork {
		if pods.CIDR.Bits() > pods.HostPrefix {
			return fmt.Errorf("the network operator: hostPrefix %d is larger than its cidr %s", pods.HostPrefix, pods.CIDR)
		}
	}
	for _, services := range spec.Networking.ServiceNetwork {
		if services.CIDR.Bits() > 28 {
			return fmt.Errorf("the DNS operator: %s does not have ten addresses", services.CIDR)
		}
	}
	return nil
}

func authenticationConfiguration(cluster *unstructured.Unstructured) error {
	content, found, err := unstructured.NestedMap(cluster.Object, "spec", "configuration", "authentication")
	if err != nil || !found {
		return err
	}
	var spec configv1.AuthenticationSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return err
	}
	configuration := &apiserver.AuthenticationConfiguration{}
	for _, provider := range spec.OIDCProviders {
		issuer := apiserver.Issuer{URL: provider.Issuer.URL, AudienceMatchPolicy: apiserver.AudienceMatchPolicyMatchAny}
		for _, audience := range provider.Issuer.Audiences {
			issuer.Audiences = append(issuer.Audiences, string(audience))
		}
		username := provider.ClaimMappings.Username
		prefix := ""
		switch {
		case username.PrefixPolicy == configv1.Prefix:
			prefix = username.Prefix.PrefixString
		case username.PrefixPolicy == configv1.NoOpinion && username.Claim != "email":
			prefix = provider.Issuer.URL + "#"
		}
		authenticator := apiserver.JWTAuthenticator{Issuer: issuer,
			ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: username.Claim, Prefix: &prefix}}}
		if groups := provider.ClaimMappings.Groups; groups.Claim != "" {
			authenticator.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: groups.Claim, Prefix: &groups.Prefix}
		}
		for _, rule := range provider.ClaimValidationRules {
			authenticator.ClaimValidationRules = append(authenticator.ClaimValidationRules,
				apiserver.ClaimValidationRule{Claim: rule.RequiredClaim.Claim, RequiredValue: rule.RequiredClaim.RequiredValue})
		}
		configuration.JWT = append(configuration.JWT, authenticator)
	}
	if refused := apiservervalidation.ValidateAuthenticationConfiguration(compiler, configuration, nil); len(refused) > 0 {
		return fmt.Errorf("the AuthenticationConfiguration of the hosted API server: %w", refused.ToAggregate())
	}
	return nil
}
