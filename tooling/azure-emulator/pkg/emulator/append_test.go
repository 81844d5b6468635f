package emulator_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	emulatedblob "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// auditContainer starts an emulator with the container audit, and returns a client of it.
func auditContainer(t *testing.T, dir string, policy *emulatedblob.Immutability, now func() time.Time) (*emulatortest.Azure, *container.Client) {
	t.Helper()
	seed := emulatortest.Seed(zone)
	seed.Containers = append(seed.Containers, emulator.SeedContainer{Account: "audit", AccountID: emulatortest.Account, Name: "audit", Immutability: policy})
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: dir, Seed: seed, Now: now}))(t)
	client := must.Get(container.NewClient(azure.URL+"/audit/audit", azure.Tokens, &container.ClientOptions{ClientOptions: azure.Options().ClientOptions}))(t)
	return azure, client
}

func body(text string) io.ReadSeekCloser { return streaming.NopCloser(strings.NewReader(text)) }

func at(offset int64) *appendblob.AppendBlockOptions {
	return &appendblob.AppendBlockOptions{AppendPositionAccessConditions: &appendblob.AppendPositionAccessConditions{AppendPosition: to.Ptr(offset)}}
}

func appendTo(t *testing.T, client *appendblob.Client, text string, o *appendblob.AppendBlockOptions) error {
	_, err := client.AppendBlock(t.Context(), body(text), o)
	return err
}

func TestAppendBlobs(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	azure, client := auditContainer(t, dir, nil, nil)
	log := client.NewAppendBlobClient("writer/log")
	wantError(t, appendTo(t, log, "a", nil), http.StatusNotFound, "BlobNotFound")
	_, err := log.Create(ctx, nil)
	must.Do(t, err)
	_, err = log.Create(ctx, &appendblob.CreateOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}})
	wantError(t, err, http.StatusConflict, "BlobAlreadyExists")

	first, err := log.AppendBlock(ctx, body("first "), at(0))
	if must.Do(t, err); *first.BlobAppendOffset != "0" || *first.BlobCommittedBlockCount != 1 {
		t.Errorf("offset %s, blocks %d", *first.BlobAppendOffset, *first.BlobCommittedBlockCount)
	}
	second, err := log.AppendBlock(ctx, body("second"), at(6))
	if must.Do(t, err); *second.BlobAppendOffset != "6" || *second.BlobCommittedBlockCount != 2 {
		t.Errorf("offset %s, blocks %d", *second.BlobAppendOffset, *second.BlobCommittedBlockCount)
	}
	wantError(t, appendTo(t, log, "again", at(6)), http.StatusPreconditionFailed, "AppendPositionConditionNotMet")
	wantError(t, appendTo(t, log, "more", &appendblob.AppendBlockOptions{AppendPositionAccessConditions: &appendblob.AppendPositionAccessConditions{MaxSize: to.Ptr(int64(15))}}),
		http.StatusPreconditionFailed, "MaxBlobSizeConditionNotMet")
	wantError(t, appendTo(t, log, strings.Repeat("x", 4<<20+1), nil), http.StatusRequestEntityTooLarge, "RequestBodyTooLarge")
	wantError(t, appendTo(t, client.NewAppendBlobClient("block"), "x", nil), http.StatusNotFound, "BlobNotFound")
	_, err = client.NewBlockBlobClient("block").UploadBuffer(ctx, []byte("x"), nil)
	must.Do(t, err)
	wantError(t, appendTo(t, client.NewAppendBlobClient("block"), "x", nil), http.StatusConflict, "InvalidBlobType")

	// The content survives a restart.
	must.Do(t, azure.Close())
	azure, client = auditContainer(t, dir, nil, nil)
	defer func() { _ = azure.Close() }()
	for _, c := range []struct {
		offset, count int64
		want          string
	}{{0, 0, "first second"}, {3, 0, "st second"}, {3, 5, "st se"}, {6, 6, "second"}, {8, 100, "cond"}} {
		response, err := client.NewAppendBlobClient("writer/log").DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: c.offset, Count: c.count}})
		must.Do(t, err)
		text, err := io.ReadAll(response.Body)
		if err != nil || string(text) != c.want || *response.ContentLength != int64(len(c.want)) {
			t.Errorf("%d bytes from %d: %q, %v", c.count, c.offset, text, err)
		}
		response.Body.Close()
	}
	_, err = client.NewAppendBlobClient("writer/log").DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 12}})
	wantError(t, err, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
	page, err := client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr("writer/")}).NextPage(ctx)
	items := must.Get(page, err)(t).Segment.BlobItems
	if len(items) != 1 || *items[0].Properties.ContentLength != 12 || *items[0].Properties.BlobType != blob.BlobTypeAppendBlob {
		t.Errorf("listed %d blobs", len(items))
	}
	// Without a policy, the blob can be replaced and deleted, with its blocks.
	_, err = client.NewAppendBlobClient("writer/log").Create(ctx, nil)
	must.Do(t, err)
	if properties, err := client.NewAppendBlobClient("writer/log").GetProperties(ctx, nil); err != nil || *properties.ContentLength != 0 {
		t.Errorf("a replaced blob: %v", err)
	}
	_, err = client.NewAppendBlobClient("writer/log").Delete(ctx, nil)
	must.Do(t, err)
}

// TestImmutableContainer: until the end of the retention, a blob can neither be deleted nor overwritten, and only an append blob can grow.
func TestImmutableContainer(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	azure, client := auditContainer(t, dir, &emulatedblob.Immutability{Days: 30, ProtectedAppends: true}, clock)
	if properties, err := client.GetProperties(ctx, nil); err != nil || !*properties.HasImmutabilityPolicy {
		t.Errorf("the container has no policy: %v", err)
	}
	log := client.NewAppendBlobClient("log")
	_, err := log.Create(ctx, nil)
	must.Do(t, err)
	must.Do(t, appendTo(t, log, "a", at(0)))
	must.Do(t, appendTo(t, log, "b", at(1)))
	refuses := func(client *container.Client) {
		t.Helper()
		log := client.NewAppendBlobClient("log")
		_, err := log.Delete(ctx, nil)
		wantError(t, err, http.StatusConflict, "BlobImmutableDueToPolicy")
		_, err = log.Create(ctx, nil)
		wantError(t, err, http.StatusConflict, "BlobImmutableDueToPolicy")
		_, err = client.NewBlockBlobClient("log").Upload(ctx, streaming.NopCloser(bytes.NewReader([]byte("forged"))), nil)
		wantError(t, err, http.StatusConflict, "BlobImmutableDueToPolicy")
		_, err = client.Delete(ctx, nil)
		wantError(t, err, http.StatusConflict, "BlobImmutableDueToPolicy")
	}
	refuses(client)
	must.Do(t, azure.Close())
	// A later seed cannot remove the policy.
	seed := emulatortest.Seed(zone)
	seed.Containers = append(seed.Containers, emulator.SeedContainer{Account: "audit", AccountID: emulatortest.Account, Name: "audit"})
	if _, err := emulatortest.Start(emulator.Options{DataDir: dir, Seed: seed, Now: clock}); err == nil {
		t.Fatal("a seed removed the policy")
	}
	azure, client = auditContainer(t, dir, &emulatedblob.Immutability{Days: 30}, clock)
	defer func() { _ = azure.Close() }()
	refuses(client)
	wantError(t, appendTo(t, client.NewAppendBlobClient("log"), "c", at(2)), http.StatusConflict, "BlobImmutableDueToPolicy")
	now = now.AddDate(0, 0, 31)
	_, err = client.NewAppendBlobClient("log").Delete(ctx, nil)
	must.Do(t, err)
}
