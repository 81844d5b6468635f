package portal

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// upgradePages lists the pages of upgrades and upgrade policies.
func (p *Portal) upgradePages() []signedInPage {
	return []signedInPage{
		{"GET /upgrades", "upgrades", p.upgrades},
		{"GET /upgrades/{upgrade}", "upgrade", p.upgrade},
		{"GET /upgrade-policies", "upgrade-policies", p.policies},
		{"GET /upgrade-policies/{policy}", "upgrade-policy", p.policy},
		{"GET /clusters/{cluster}/upgrades", "cluster-upgrades", p.clusterUpgrades},
	}
}

// upgradesView is the content of the list of upgrades.
type upgradesView struct {
	// All is true if the list contains ended upgrades.
	All         bool
	Items       []*clusterservicev1.Upgrade
	First, Next string
}

// upgrades lists the upgrades of the region: by default those in progress.
func (p *Portal) upgrades(w http.ResponseWriter, v *view) {
	body := upgradesView{All: v.request.URL.Query().Get("all") != ""}
	query := listQuery(v)
	if !body.All {
		query.Set("active", "true")
	}
	var list adminv1.UpgradeList
	if err := v.api.get("/upgrades", query, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Items = adminv1.Contents(list.Items)
	body.First, body.Next = pageLinks(v.request.URL, list.NextPageToken)
	v.render(w, http.StatusOK, "upgrades", page{Title: "Upgrades", Section: "/upgrades", Body: body})
}

// upgradeView is the content of the page of an upgrade.
type upgradeView struct {
	Upgrade *clusterservicev1.Upgrade
	// Components are those of the control plane that are not at the new release.
	Components []*clusterservicev1.ComponentProgress
	Offers     []offer
}

// upgrade shows the steps, gates and components of an upgrade.
func (p *Portal) upgrade(w http.ResponseWriter, v *view) {
	var upgrade adminv1.FleetUpgrade
	if err := v.api.get("/upgrades/"+url.PathEscape(v.request.PathValue("upgrade")), nil, &upgrade); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	u := upgrade.Of
	v.render(w, http.StatusOK, "upgrade", page{Title: "Upgrade to " + u.GetSpec().GetVersion(), Section: "/upgrades", Crumbs: []crumb{{"Upgrades", "/upgrades"}},
		Body: upgradeView{Upgrade: u, Components: awaitedComponents(u), Offers: upgradeOffers(u)}})
}

// upgradeOffers returns the actions that suit the state of an upgrade.
func upgradeOffers(u *clusterservicev1.Upgrade) []offer {
	if u.GetStatus().GetCompletionTime() != nil {
		return nil
	}
	if u.GetStatus().GetPaused() {
		return offersOf(kindUpgrade, u.GetUid(), "resume", "abort")
	}
	return offersOf(kindUpgrade, u.GetUid(), "pause", "abort")
}

// awaitedComponents returns the components of a control plane that are not at the new release: those that roll out first, the oldest first.
func awaitedComponents(u *clusterservicev1.Upgrade) []*clusterservicev1.ComponentProgress {
	var list []*clusterservicev1.ComponentProgress
	for _, step := range u.GetStatus().GetSteps() {
		for _, c := range step.GetComponents() {
			if c.GetState() != clusterservicev1.ComponentState_COMPONENT_STATE_UPDATED {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *clusterservicev1.ComponentProgress) int {
		// ROLLING_OUT comes after WAITING in the enumeration.
		return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), a.GetSince().AsTime().Compare(b.GetSince().AsTime()), strings.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// requester returns who requested an upgrade.
func requester(u *clusterservicev1.Upgrade) string {
	switch u.GetSpec().GetOrigin() {
	case clusterservicev1.UpgradeOrigin_UPGRADE_ORIGIN_CUSTOMER:
		return "the customer"
	case clusterservicev1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY:
		return "the policy " + u.GetSpec().GetPolicy()
	}
	return u.GetSpec().GetActor().GetName()
}

// gateOffer returns the link to acknowledge a gate of an upgrade; empty if it does not wait, or cannot be acknowledged.
func gateOffer(upgrade string, g *clusterservicev1.UpgradeGate) string {
	if upgrade == "" || g.GetState() != clusterservicev1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING || !g.GetCanBeAcknowledged() {
		return ""
	}
	return offerOf(kindUpgrade, "acknowledge", upgrade, url.Values{"gate": {g.GetName()}}).URL
}

// clusterUpgradesView is the content of the upgrades of a cluster.
type clusterUpgradesView struct {
	clusterFrame
	Items []*clusterservicev1.Upgrade
	// Plan is that of the version and the node pools that were asked for.
	Plan               *clusterservicev1.UpgradePlan
	Version, NodePools string
	Versions, Follows  []string
	// Start is the URL of the form that starts the planned upgrade; empty if it would be refused.
	Start string
}

// clusterUpgrades shows the upgrades of a cluster, and plans another one.
func (p *Portal) clusterUpgrades(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "/upgrades")
	if !found {
		return
	}
	asked := v.request.URL.Query()
	body := clusterUpgradesView{clusterFrame: frame(cluster, "/upgrades"), Version: strings.TrimSpace(asked.Get("version")), NodePools: asked.Get("nodePools"), Follows: followNames}
	if !slices.Contains(followNames, body.NodePools) {
		body.NodePools = followNames[0]
	}
	var list adminv1.UpgradeList
	read := reader{view: v}
	read.get("Upgrades", "/clusters/"+url.PathEscape(cluster.UID)+"/upgrades", nil, &list)
	plan, planErr := planUpgrade(v, cluster.UID, body.Version, body.NodePools)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Items = adminv1.Contents(list.Items)
	slices.SortStableFunc(body.Items, func(a, b *clusterservicev1.Upgrade) int {
		return b.GetCreateTime().AsTime().Compare(a.GetCreateTime().AsTime())
	})
	if planErr != nil {
		body.Problems = append(body.Problems, problem{"The plan", p.sentence(v, planErr)})
	} else {
		body.Plan = plan
		for _, target := range plan.GetTargets() {
			body.Versions = append(body.Versions, target.GetVersion())
		}
		if body.Version == "" {
			body.Version = plan.GetToVersion()
		}
		if len(plan.GetRefusals()) == 0 && plan.GetToVersion() != "" {
			body.Start = offerOf(kindCluster, "upgrade", cluster.UID, url.Values{"version": {plan.GetToVersion()}, "nodePools": {body.NodePools}}).URL
		}
	}
	v.render(w, http.StatusOK, "cluster-upgrades", clusterPage(cluster, "Upgrades", body))
}

// policies lists the upgrade policies.
func (p *Portal) policies(w http.ResponseWriter, v *view) {
	var list adminv1.UpgradePolicyList
	if err := v.api.get("/upgrade-policies", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "upgrade-policies", page{Title: "Upgrade policies", Section: "/upgrades", Body: adminv1.Contents(list.Items)})
}

// policyView is the content of the page of an upgrade policy.
type policyView struct {
	Policy *clusterservicev1.UpgradePolicy
	Offers []offer
}

// policy shows the progress of an upgrade policy and the clusters that it leaves out.
func (p *Portal) policy(w http.ResponseWriter, v *view) {
	var message adminv1.Message[*clusterservicev1.UpgradePolicy]
	if err := v.api.get("/upgrade-policies/"+url.PathEscape(v.request.PathValue("policy")), nil, &message); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	name := message.Of.GetName()
	v.render(w, http.StatusOK, "upgrade-policy", page{Title: name, Section: "/upgrades", Crumbs: []crumb{{"Upgrades", "/upgrades"}, {"Policies", "/upgrade-policies"}},
		Body: policyView{message.Of, offersOf(kindPolicy, name, "apply", "delete")}})
}

// policyState returns the state of a policy: paused, open or closed. Lists do not have the status.
func policyState(policy *clusterservicev1.UpgradePolicy) string {
	switch {
	case policy.GetSpec().GetPaused():
		return "Paused"
	case policy.GetStatus().GetOpen():
		return "Open"
	}
	return "Closed"
}

// policyScope returns which clusters a policy applies to.
func policyScope(spec *clusterservicev1.UpgradePolicySpec) string {
	if spec.GetClusterUid() != "" {
		return "cluster " + spec.GetClusterUid()
	}
	var parts []string
	for _, filter := range []struct {
		name string
		list []string
	}{{"channel groups", spec.GetChannelGroups()}, {"minor versions", spec.GetMinorVersions()}, {"shards", spec.GetProvisionShards()}} {
		if len(filter.list) > 0 {
			parts = append(parts, filter.name+" "+strings.Join(filter.list, ", "))
		}
	}
	if len(parts) == 0 {
		return "all clusters"
	}
	return strings.Join(parts, "; ")
}

// policyWindows returns the maintenance windows of a policy.
func policyWindows(spec *clusterservicev1.UpgradePolicySpec) string {
	schedule := spec.GetSchedule()
	switch {
	case schedule == nil:
		return "at any time"
	case schedule.GetCron() != "":
		return fmt.Sprintf("%s for %d min", schedule.GetCron(), schedule.GetCronMinutes())
	}
	var windows []string
	for _, window := range schedule.GetWeekly() {
		windows = append(windows, fmt.Sprintf("%s %s for %d min", strings.Join(window.GetDays(), ", "), window.GetStart(), window.GetMinutes()))
	}
	return strings.Join(windows, "; ")
}
