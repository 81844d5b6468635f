package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) breakGlassList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list CLUSTER", Short: "List the credentials of a cluster and their use"}, adminv1.ReadCredentials, noQuery, asTable(e, func(list *adminv1.CredentialList) error {
		slices.SortStableFunc(list.Items, func(a, b adminv1.FleetCredential) int {
			return b.Of.GetCreateTime().AsTime().Compare(a.Of.GetCreateTime().AsTime())
		})
		return display.List(e.out, list.Items, credentialRow)
	}))
}

func (e *environment) breakGlassShow() *cobra.Command {
	return view(e, &cobra.Command{Use: "show UID", Short: "Show a credential with the fingerprint in the audit log of the API server"}, adminv1.ReadCredential, noQuery, asTable(e, func(credential *adminv1.FleetCredential) error {
		return display.Table(e.out, []string{"FIELD", "VALUE"}, credentialFields(credential))
	}))
}

func credentialRow(item adminv1.FleetCredential) display.Row {
	spec, status := item.Of.GetSpec(), item.Of.GetStatus()
	use := status.GetUse()
	return display.Row{{"UID", item.Of.GetUid()}, {"CLASS", enumWord(spec.GetClass(), "BREAK_GLASS_CLASS_")}, {"LEVEL", credentialLevel(spec)}, {"STATE", credentialState(status.GetState())},
		{"REQUESTER", spec.GetRequester()}, {"REASON", cmp.Or(spec.GetReason(), "-")}, {"EXPIRES", formatTime(status.GetExpirationTime())}, {"FIRST USE", formatTime(use.GetFirstTime())},
		{"LAST USE", formatTime(use.GetLastTime())}, {"FROM", cmp.Or(strings.Join(use.GetAddresses(), ", "), "-")}}
}

// credentialFields returns the fields of a credential without its certificate.
func credentialFields(item *adminv1.FleetCredential) [][]string {
	spec, status := item.Of.GetSpec(), item.Of.GetStatus()
	use := status.GetUse()
	fields := [][]string{
		{"uid", item.Of.GetUid()}, {"cluster uid", item.Of.GetClusterUid()}, {"class", enumWord(spec.GetClass(), "BREAK_GLASS_CLASS_")}, {"level", credentialLevel(spec)}, {"state", credentialState(status.GetState())},
		{"requester", spec.GetRequester()}, {"reason", cmp.Or(spec.GetReason(), "-")}, {"requested", formatTime(item.Of.GetCreateTime())},
		{"expires", formatTime(status.GetExpirationTime())}, {"fingerprint", cmp.Or(status.GetCertificateFingerprint(), "-")},
	}
	if use == nil {
		return append(fields, []string{"used", "no use reported"})
	}
	return append(fields, []string{"first use", fmt.Sprintf("%s, %s", formatTime(use.GetFirstTime()), use.GetFirstRequest())},
		[]string{"last use", formatTime(use.GetLastTime()) + " (rounded to the hour)"}, []string{"from", strings.Join(use.GetAddresses(), ", ")})
}

// credentialLevel returns the level of an SRE's credential. A customer's has none.
func credentialLevel(spec *csv1.BreakGlassCredentialSpec) string {
	if spec.GetLevel() == csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_UNSPECIFIED {
		return "-"
	}
	return enumWord(spec.GetLevel(), "BREAK_GLASS_LEVEL_")
}

func credentialState(state csv1.BreakGlassCredentialState) string {
	return strings.TrimPrefix(state.String(), "BREAK_GLASS_CREDENTIAL_STATE_")
}

// formatTime returns a time in UTC to the second, or a dash for nil.
func formatTime(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}
