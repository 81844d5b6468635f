package azure

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
)

func TestAllows(t *testing.T) {
	contributor := &armauthorization.Permission{Actions: []*string{to.Ptr("*")}, NotActions: []*string{to.Ptr("Microsoft.Authorization/*/Write")}}
	tests := map[string]struct {
		reason     string
		permission *armauthorization.Permission
		action     string
		want       bool
	}{
		"Exact":       {"a pattern without an asterisk matches itself", &armauthorization.Permission{Actions: []*string{to.Ptr("Microsoft.Network/virtualNetworks/read")}}, "Microsoft.Network/virtualNetworks/read", true},
		"Case":        {"Azure compares without regard to case", &armauthorization.Permission{Actions: []*string{to.Ptr("microsoft.network/VIRTUALNETWORKS/read")}}, "Microsoft.Network/virtualNetworks/read", true},
		"Prefix":      {"a pattern is not a prefix", &armauthorization.Permission{Actions: []*string{to.Ptr("Microsoft.Network/virtualNetworks")}}, "Microsoft.Network/virtualNetworks/read", false},
		"AllOfOne":    {"an asterisk spans slashes", &armauthorization.Permission{Actions: []*string{to.Ptr("Microsoft.Network/*")}}, "Microsoft.Network/virtualNetworks/subnets/join/action", true},
		"Reading":     {"an asterisk may be at the start", &armauthorization.Permission{Actions: []*string{to.Ptr("*/read")}}, "Microsoft.Network/virtualNetworks/read", true},
		"ReadingOnly": {"the text after the asterisk must match", &armauthorization.Permission{Actions: []*string{to.Ptr("*/read")}}, "Microsoft.Network/virtualNetworks/write", false},
		"Middle":      {"asterisks may be in the middle", &armauthorization.Permission{Actions: []*string{to.Ptr("Microsoft.*/virtual*/read")}}, "Microsoft.Network/virtualNetworks/read", true},
		"Overlap":     {"the texts around an asterisk may not overlap", &armauthorization.Permission{Actions: []*string{to.Ptr("ab*ba")}}, "aba", false},
		"Excepted":    {"notActions exclude actions", contributor, "Microsoft.Authorization/roleAssignments/write", false},
		"NotExcepted": {"notActions exclude no others", contributor, "Microsoft.Compute/disks/write", true},
		"Nothing":     {"an empty permission grants nothing", &armauthorization.Permission{}, "Microsoft.Compute/disks/write", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := allows(tc.permission, tc.action); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPauseFrom(t *testing.T) {
	tests := map[string]struct {
		reason string
		header http.Header
		want   time.Duration
	}{
		"None":         {"no pause is requested", http.Header{}, 0},
		"Seconds":      {"whole seconds", http.Header{"Retry-After": {"17"}}, 17 * time.Second},
		"Milliseconds": {"milliseconds are preferred", http.Header{"Retry-After": {"1"}, "X-Ms-Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
		"Past":         {"a date in the past", http.Header{"Retry-After": {"Fri, 31 Dec 1999 23:59:59 GMT"}}, 0},
		"Nonsense":     {"a malformed value is ignored", http.Header{"Retry-After": {"soon"}}, 0},
		"Negative":     {"a negative value is ignored", http.Header{"Retry-After": {"-5"}}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := pauseFrom(&http.Response{Header: tc.header}); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
