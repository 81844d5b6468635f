package clusterservice

import (
	"context"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// OpenShiftVersions is the list of versions that clusters can be installed with.
type OpenShiftVersions struct {
	// ETag identifies the content.
	ETag     string
	Versions []hub.OpenShiftVersion
}

// OpenShiftVersions returns the versions that clusters can be installed with. last is an earlier result or the zero value;
// it is returned if the versions have not changed.
func (c *Client) OpenShiftVersions(ctx context.Context, last OpenShiftVersions) (OpenShiftVersions, error) {
	response, err := c.rpc.ListOpenShiftVersions(ctx, &clusterservicev1.ListOpenShiftVersionsRequest{Etag: last.ETag})
	if err != nil {
		return OpenShiftVersions{}, apierror.FromGRPC(err)
	}
	if response.GetNotModified() {
		return last, nil
	}
	list := OpenShiftVersions{ETag: response.GetEtag()}
	for _, version := range response.GetVersions() {
		list.Versions = append(list.Versions, hub.OpenShiftVersion{
			Name: version.GetName(), ChannelGroup: version.GetChannelGroup(), Enabled: version.GetEnabled(), EndOfLife: when(version.GetEndOfLifeTime()),
		})
	}
	return list, nil
}
