package adminclient

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// CopyRecording writes the asciicast of a recording to w. If unverified is true, admin does not verify its signature. After an error w has the part
// before it.
func (c *Client) CopyRecording(ctx context.Context, id string, unverified bool, w io.Writer) (err error) {
	address := c.options.Endpoint + adminv1.Root + adminv1.ReadRecordingContent.Target(id)
	if unverified {
		address += "?unverified=true"
	}
	request, err := runtime.NewRequest(ctx, http.MethodGet, address)
	if err != nil {
		return err
	}
	runtime.SkipBodyDownload(request)
	// The recording may take longer than other responses. ctx limits it.
	patient := &http.Client{Transport: c.http.Transport}
	response, err := newPipeline(c.credential, c.options.Audience, patient).Do(request)
	if err != nil {
		return requestError(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		answer, err := io.ReadAll(io.LimitReader(response.Body, maxFailure))
		if err != nil {
			return &unreachableError{fmt.Errorf("reading the response: %w", err)}
		}
		return c.failure(response.StatusCode, answer)
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("the recording is not complete: it was changed, its storage is away, or the connection was lost; see the log of admin: %w", err)
	}
	return nil
}

// maxFailure is the maximum number of bytes of an error of admin.
const maxFailure = 1 << 20
