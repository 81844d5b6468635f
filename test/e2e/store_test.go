package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// storeAs returns a connection to Cosmos DB with the identity of a service.
func storeAs(t *testing.T, service string) *database.DB {
	t.Helper()
	endpoints := region.Endpoints()
	db := must.Get(endpoints.OpenStore(t.Context(), service))(t)
	t.Cleanup(db.Close)
	return db
}

// refused reports whether err is Cosmos DB's response for a missing right.
func refused(err error) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == http.StatusForbidden
}

// pause returns an admin operation that pauses a cluster, as admin writes it.
func pause(id string) database.AdminOperationDocument {
	return database.AdminOperationDocument{OperationID: id, SortKey: database.AdminSortKey(time.Now(), id), Action: "clusters.pause", State: database.AdminAccepted,
		StartTime: time.Now().UTC(), LastTransitionTime: time.Now().UTC(), Target: database.AdminTarget{Kind: "cluster", ID: uuid.NewString()}}
}

// TestFrontendCannotForgeAdminOperations uses the frontend's identity at Cosmos DB: it can neither read nor write admin's documents, and
// the backend executes no admin operation that is in the container of customers' resources.
func TestFrontendCannotForgeAdminOperations(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	frontend, admin := storeAs(t, "frontend"), storeAs(t, "admin")
	id := uuid.NewString()
	batch := frontend.NewBatch(database.AdminPartition)
	database.Create(batch, frontend.AdminOperations(), database.AdminOperationKey(id), pause(id))
	if err := batch.Commit(ctx); !refused(err) {
		t.Errorf("the frontend creates an admin operation: %v", err)
	}
	if _, _, err := frontend.AdminRecords(ctx, database.AdminFilter{}, "", 1); !refused(err) {
		t.Errorf("the frontend lists admin operations: %v", err)
	}
	if _, err := frontend.Elevations().Find(ctx, database.ElevationKey(id)); !refused(err) {
		t.Errorf("the frontend reads an elevation: %v", err)
	}
	// The frontend may write to its own container, also to the partition that admin's documents had in earlier releases.
	properties := must.Get(json.Marshal(pause(id)))(t)
	key := database.AdminOperationKey(id)
	document := fmt.Sprintf(`{"id":%q,"partitionKey":"admin","kind":"adminOperation","resourceId":%q,"key":%q,"properties":%s}`,
		uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.ToLower(key.ResourceID))), key.ResourceID, strings.ToLower(key.ResourceID), properties)
	if status := postDocument(t, ctx, token(t, ctx, "frontend"), "Resources", document); status != http.StatusCreated {
		t.Errorf("the frontend creates a document in its container: %d", status)
	}
	if status := postDocument(t, ctx, token(t, ctx, "frontend"), "Admin", document); status != http.StatusForbidden {
		t.Errorf("the frontend creates a document in admin's container: %d", status)
	}
	// The executor handles changes in their order, so it has handled the forged operation when it has ended a later one.
	later := uuid.NewString()
	batch = admin.NewBatch(database.AdminPartition)
	operation := database.Create(batch, admin.AdminOperations(), database.AdminOperationKey(later), pause(later))
	must.Do(t, batch.Commit(ctx))
	must.Do(t, region.Restart(ctx, "backend"))
	eventually.Before(ctx, t, "the later operation has ended", func() error {
		item, err := admin.AdminOperations().Get(ctx, operation.Key)
		if err == nil && !item.Value.State.Terminal() {
			err = fmt.Errorf("its state is %s", item.Value.State)
		}
		return err
	})
	if item, err := admin.AdminOperations().Find(ctx, key); err != nil || item != nil {
		t.Errorf("the forged operation in admin's container: %+v, %v", item, err)
	}
}

// TestOnlyServicesUseTheStore sends requests to Cosmos DB with other tokens than a service's.
func TestOnlyServicesUseTheStore(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	for _, file := range []string{region.Endpoints().CredentialsFile, region.Endpoints().EngineersFile, region.Endpoints().ARMCredentialsFile} {
		for _, audience := range []string{"https://127.0.0.1", "https://cosmos.azure.com", "https://management.azure.com"} {
			text := secretToken(t, ctx, file, audience)
			if text == "" {
				continue // the issuer refuses it
			}
			status := postDocument(t, ctx, text, "Resources", `{"id":"x","partitionKey":"x"}`)
			if status != http.StatusUnauthorized && status != http.StatusForbidden {
				t.Errorf("a token for %s of %s: %d", audience, file, status)
			}
		}
	}
	for _, invalid := range []string{"", "x", token(t, ctx, "frontend") + "x"} {
		if status := postDocument(t, ctx, invalid, "Resources", `{"id":"x","partitionKey":"x"}`); status != http.StatusUnauthorized {
			t.Errorf("an invalid token: %d", status)
		}
	}
}

// token returns a token of a service for Cosmos DB.
func token(t *testing.T, ctx context.Context, service string) string {
	t.Helper()
	endpoints := region.Endpoints()
	credential := must.Get(endpoints.Credential(service))(t)
	got := must.Get(credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://127.0.0.1/.default"}}))(t)
	return got.Token
}

// secretToken returns a token for an audience of the first client in a file with credentials, or "" if the issuer refuses it.
func secretToken(t *testing.T, ctx context.Context, file, audience string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	var clients []local.Credentials
	if err := json.Unmarshal(text, &clients); err != nil || len(clients) == 0 {
		t.Fatalf("%s: %v", file, err)
	}
	return issuedToken(t, ctx, clients[0], audience)
}

// issuedToken returns a token for an audience of a client with a secret, or "" if the issuer refuses it.
func issuedToken(t *testing.T, ctx context.Context, client local.Credentials, audience string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {client.ClientID}, "client_secret": {client.ClientSecret}, "scope": {audience + "/.default"}}
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, region.Endpoints().ARM+"/"+client.TenantID+"/oauth2/v2.0/token", strings.NewReader(form.Encode())))(t)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := must.Get(regionClient(t).Do(request))(t)
	defer response.Body.Close()
	var issued struct {
		AccessToken string `json:"access_token"`
	}
	must.Do(t, json.NewDecoder(response.Body).Decode(&issued))
	return issued.AccessToken
}

// postDocument creates a document with a token and returns the status.
func postDocument(t *testing.T, ctx context.Context, token, container, document string) int {
	t.Helper()
	var identified struct {
		PartitionKey string `json:"partitionKey"`
	}
	must.Do(t, json.Unmarshal([]byte(document), &identified))
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, region.Endpoints().Cosmos+"/dbs/hcp/colls/"+container+"/docs", strings.NewReader(document)))(t)
	request.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+token))
	request.Header.Set("x-ms-documentdb-partitionkey", fmt.Sprintf("[%q]", identified.PartitionKey))
	response := must.Get(regionClient(t).Do(request))(t)
	defer response.Body.Close()
	must.Get(io.Copy(io.Discard, response.Body))(t)
	return response.StatusCode
}

// regionClient returns a client that trusts the region's certificates.
func regionClient(t *testing.T) *http.Client {
	t.Helper()
	authorities := must.Get(os.ReadFile(region.Endpoints().CAFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
