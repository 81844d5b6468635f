package httpcase

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestActiveResourceFollowsPages: a resource on a later page of a list counts too.
func TestActiveResourceFollowsPages(t *testing.T) {
	const list = "/subscriptions/s/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != list:
			fmt.Fprint(w, `{"value":[]}`)
		case r.URL.Query().Get("$skipToken") == "":
			fmt.Fprintf(w, `{"value":[{"id":"/a","type":%q,"properties":{"provisioningState":"Succeeded"}}],"nextLink":"https://management.example%s?api-version=v&$skipToken=2"}`, clusterType, list)
		default:
			fmt.Fprintf(w, `{"value":[{"id":"/b","type":%q,"properties":{"provisioningState":"Updating"}}]}`, clusterType)
		}
	}))
	defer api.Close()
	active, err := Target{BaseURL: api.URL, Client: api.Client(), APIVersion: "v"}.activeResource(context.Background(), list)
	if err != nil || active != "/b is Updating" {
		t.Errorf("got %q, %v", active, err)
	}
}
