package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/credential"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// refusedDeployments returns deployments that a preflight refuses, by what is wrong with them.
func refusedDeployments(tb testing.TB) (accepted []byte, refused map[string][]byte) {
	all := must.Get(examples.Of(version.Newest().Name))(tb)
	for _, example := range all {
		if example.Name == "HcpOpenShiftClusters_CreateOrUpdate_Full" {
			accepted = append(append([]byte(`{"resources":[`), bytes.Join([][]byte{example.Body(), example.Body()}, []byte(","))...), "]}"...)
		}
	}
	refused = refusalcost.Texts(maxBody)
	maps.Copy(refused, map[string][]byte{
		"numbers for resources":   refusalcost.Filled(maxBody, `{"resources":[`, "1,", "1]}"),
		"many resources":          refusalcost.Filled(maxBody, `{"resources":[`, "{},", "{}]}"),
		"object for resources":    refusalcost.Numbered(maxBody, `{"resources":{`, `"%d":{},`, `"last":1}}`),
		"unknown fields":          refusalcost.Numbered(maxBody, `{"resources":[{`, `"%d":1,`, `"last":1}]}`),
		"unknown list":            refusalcost.Filled(maxBody, `{"resources":[{"other":[`, "1,", "1]}]}"),
		"numbers of tags":         refusalcost.Numbered(maxBody, `{"resources":[{"tags":{`, `"%d":1,`, `"last":1}}]}`),
		"resource at the end":     refusalcost.Filled(maxBody, `{"other":[`, "{},", `{}],"resources":[{},1]}`),
		"numbers after resources": refusalcost.Filled(maxBody, `{"resources":[1],"other":[`, "1,", `1]}`),
	})
	return accepted, refused
}

// decodeDeployment decodes the clusters of a deployment as a preflight does.
func decodeDeployment() func(content []byte) error {
	v := versions.All()[version.Newest().Name]
	return func(content []byte) error {
		resources, err := (&request{body: content}).deploymentResources()
		if err != nil {
			return err
		}
		for _, resource := range resources {
			p := &plannedResource{text: resource.text}
			if err := p.decode(v.Form(hub.ClusterResourceType)); err != nil {
				return err
			}
			if field := v.UnknownField(hub.ClusterResourceType, p.fields); field != "" {
				return errors.New(field)
			}
			body := wire.NewBody(p.fields)
			v.DecodeCluster(body, &hub.Cluster{}, true)
			if len(body.Problems()) > 0 {
				return errors.New(body.Problems()[0].Message)
			}
		}
		return nil
	}
}

// TestRefusedDeploymentsNeedNoMoreMemory compares deployments that are refused with one of full clusters.
func TestRefusedDeploymentsNeedNoMoreMemory(t *testing.T) {
	accepted, refused := refusedDeployments(t)
	refusalcost.CheckMemory(t, accepted, refused, decodeDeployment())
}

// BenchmarkRefusedDeployments compares deployments that are refused with one of full clusters.
func BenchmarkRefusedDeployments(b *testing.B) {
	accepted, refused := refusedDeployments(b)
	refusalcost.Compare(b, accepted, refused, decodeDeployment())
}

// refusedSigningRequests returns bodies of requestAdminCredential that are refused.
func refusedSigningRequests(tb testing.TB) (accepted []byte, refused map[string][]byte) {
	_, text, err := credential.NewRequest()
	if err != nil {
		tb.Fatal(err)
	}
	accepted = must.Get(json.Marshal(map[string]string{"certificateSigningRequest": string(text)}))(tb)
	refused = refusalcost.Texts(maxBody)
	refused["long request"] = refusalcost.Filled(maxBody, `{"certificateSigningRequest":"`, "a", `"}`)
	refused["list for the request"] = refusalcost.Filled(maxBody, `{"certificateSigningRequest":[`, "1,", "1]}")
	return accepted, refused
}

// decodeSigningRequest decodes and checks the body of requestAdminCredential.
func decodeSigningRequest(content []byte) error {
	fields, err := (&request{body: content}).object(version.AdminCredentialForm())
	if err != nil {
		return err
	}
	if field := version.UnknownAdminCredentialField(fields); field != "" {
		return errors.New(field)
	}
	body := wire.NewBody(fields)
	request := version.DecodeAdminCredentialRequest(body)
	return apierror.InvalidFields(mergeProblems(body.Problems(), credential.CheckRequest("certificateSigningRequest", request.CertificateSigningRequest)))
}

// TestRefusedSigningRequestsNeedNoMoreMemory compares signing requests that are refused with one that is valid.
func TestRefusedSigningRequestsNeedNoMoreMemory(t *testing.T) {
	accepted, refused := refusedSigningRequests(t)
	refusalcost.CheckMemory(t, accepted, refused, decodeSigningRequest)
}

// BenchmarkRefusedSigningRequests compares signing requests that are refused with one that is valid.
func BenchmarkRefusedSigningRequests(b *testing.B) {
	accepted, refused := refusedSigningRequests(b)
	refusalcost.Compare(b, accepted, refused, decodeSigningRequest)
}

// refusedSubscriptions returns documents of subscriptions that are refused, by what is wrong with them.
func refusedSubscriptions() (accepted []byte, refused map[string][]byte) {
	const begin = `{"state":"Registered","registrationDate":"now","properties":{`
	accepted = refusalcost.Numbered(16<<10, begin+`"tenantId":"11111111-1111-1111-1111-111111111111","registeredFeatures":[`, `{"name":"Microsoft.RedHatOpenShift/Feature%d","state":"Registered"},`, `{"name":"a","state":"b"}]}}`)
	refused = refusalcost.Texts(maxBody)
	maps.Copy(refused, map[string][]byte{
		"no state":            refusalcost.Numbered(maxBody, `{"properties":{"additionalProperties":{`, `"%d":1,`, `"last":1}}}`),
		"large extra":         refusalcost.Numbered(maxBody, begin+`"additionalProperties":{`, `"%d":1,`, `"last":1}}}`),
		"list for extra":      refusalcost.Filled(maxBody, begin+`"availabilityZones":[`, "1,", "1]}}"),
		"long text":           refusalcost.Filled(maxBody, begin+`"quotaId":"`, "a", `"}}`),
		"many features":       refusalcost.Filled(maxBody, begin+`"registeredFeatures":[`, "{},", "{}]}}"),
		"numbers as features": refusalcost.Filled(maxBody, begin+`"registeredFeatures":[`, "1,", "1]}}"),
		"many tenants":        refusalcost.Filled(maxBody, begin+`"managedByTenants":[`, `{"tenantId":"a"},`, "{}]}}"),
	})
	return accepted, refused
}

// decodeSubscriptionBody decodes and checks a document of a subscription as its PUT does.
func decodeSubscriptionBody(content []byte) error {
	fields, err := (&request{body: content}).object(subscriptionForm)
	if err != nil {
		return err
	}
	_, violations := decodeSubscription(fields)
	return apierror.InvalidFields(violations)
}

// TestRefusedSubscriptionsNeedNoMoreMemory compares documents of subscriptions that are refused with one that has many features.
func TestRefusedSubscriptionsNeedNoMoreMemory(t *testing.T) {
	accepted, refused := refusedSubscriptions()
	refusalcost.CheckMemory(t, accepted, refused, decodeSubscriptionBody)
}

// BenchmarkRefusedSubscriptions compares documents of subscriptions that are refused with one that has many features.
func BenchmarkRefusedSubscriptions(b *testing.B) {
	accepted, refused := refusedSubscriptions()
	refusalcost.Compare(b, accepted, refused, decodeSubscriptionBody)
}
