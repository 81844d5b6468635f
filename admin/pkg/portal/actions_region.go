package portal

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// preview is what an action would do, as admin computes it.
type preview struct {
	// Upgrade is the plan of an upgrade.
	Upgrade *clusterservicev1.UpgradePlan
	// Drain is where the clusters of a shard would go.
	Drain *clusterservicev1.DrainPlan
	// Sentences are other facts.
	Sentences []string
}

// previews read what the actions would do whose form package adminv1 declares.
var previews = map[string]func(v *view, o object, form url.Values) (preview, error){adminv1.ActionShardDrain: previewDrain}

// previewPlacement reads why a cluster is on its shard, or what it waits for.
func previewPlacement(v *view, o object, _ url.Values) (preview, error) {
	var placement adminv1.Message[*clusterservicev1.PlacementExplanation]
	err := v.api.get("/clusters/"+url.PathEscape(o.ID)+"/placement", nil, &placement)
	if err != nil {
		return preview{}, err
	}
	return preview{Sentences: placement.Of.GetSentences()}, nil
}

// previewDrain reads where the clusters of a shard would go.
func previewDrain(v *view, o object, _ url.Values) (preview, error) {
	var plan adminv1.Message[*clusterservicev1.DrainPlan]
	err := v.api.get("/shards/"+url.PathEscape(o.ID)+"/drain-plan", nil, &plan)
	return preview{Drain: plan.Of}, err
}

// previewUpgrade reads the steps and gates of an upgrade.
func previewUpgrade(v *view, o object, form url.Values) (preview, error) {
	plan, err := planUpgrade(v, o.ID, text(form, "version"), form.Get("nodePools"))
	return preview{Upgrade: plan}, err
}

// planUpgrade reads the plan of an upgrade of a cluster. An empty version is the newest release of its minor version.
func planUpgrade(v *view, cluster, version, nodePools string) (*clusterservicev1.UpgradePlan, error) {
	query := url.Values{}
	for name, value := range map[string]string{"version": version, "nodePools": nodePools} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var plan adminv1.Message[*clusterservicev1.UpgradePlan]
	err := v.api.get("/clusters/"+url.PathEscape(cluster)+"/upgrade-plan", query, &plan)
	return plan.Of, err
}

// nodePoolFollows are the node pools that follow their control plane, by their names in forms and in admin's API.
var nodePoolFollows = map[string]clusterservicev1.NodePoolFollow{
	"none": clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_NONE, "unpinned": clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED, "all": clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_ALL,
}

// followNames are the names of nodePoolFollows in the order of forms.
var followNames = []string{"none", "unpinned", "all"}

// followName returns the name of the node pools that follow their control plane.
func followName(follow clusterservicev1.NodePoolFollow) string {
	for _, name := range followNames {
		if nodePoolFollows[name] == follow {
			return name
		}
	}
	return followNames[0]
}

// upgradeActions lists the actions on upgrades and upgrade policies.
func upgradeActions() []action {
	const follows = "The node pools that follow the control plane, one after the other: none, unpinned (without a version of their own) or all."
	nodePools := field{Name: "nodePools", Label: "Node pools", Help: follows, Kind: adminv1.FieldSelect, Choices: followNames, Value: followNames[0]}
	policyFields := []field{
		{Name: "cluster", Label: "Only this cluster", Help: "The UID of one cluster. Its policy overrides those of the region.", Optional: true},
		{Name: "channelGroups", Label: "Channel groups", Help: "Only clusters of these groups, separated by commas. Empty means all.", Optional: true},
		{Name: "minorVersions", Label: "Minor versions", Help: "Only clusters of these versions, for example 4.20, 4.21. Empty means all.", Optional: true},
		{Name: "provisionShards", Label: "Provision shards", Help: "Only clusters on these shards. Empty means all.", Optional: true},
		nodePools,
		{Name: "maxConcurrent", Label: "Upgrades at the same time", Help: "1 to 1000; 0 means the limit of the region.", Kind: adminv1.FieldNumber, Value: "0"},
		{Name: "weekly", Label: "Weekly windows", Help: "One in a line: days, start in UTC and minutes, for example SAT,SUN 22:00 240. Without windows and without cron, upgrades start at any time.", Kind: adminv1.FieldArea, Optional: true},
		{Name: "cron", Label: "Windows by cron", Help: "Instead of weekly windows: minute, hour, day of month, month, day of week, in UTC.", Optional: true},
		{Name: "cronMinutes", Label: "Minutes of a window by cron", Help: "15 to 10080.", Kind: adminv1.FieldNumber, Optional: true},
		{Name: "paused", Label: "Paused", Help: "A paused policy starts no upgrade.", Kind: adminv1.FieldCheck, Optional: true},
	}
	const effect = "Within its windows and limits the policy upgrades all clusters that it matches to the newest recommended patch release of their minor version. It replaces a policy with the same name. Upgrades in progress continue."
	return []action{
		{Kind: kindCluster, Path: "upgrade", Name: adminv1.ActionUpgradeStart, Title: "Start upgrade", preview: previewUpgrade,
			Effect: "The control plane gets each release of the path when its gates are passed. A rollout that has begun cannot be reverted. The selected node pools follow, one after the other; their nodes are replaced.",
			Fields: []field{
				{Name: "version", Label: "Version", Help: "MAJOR.MINOR.PATCH, as planned.", Kind: adminv1.FieldFixed},
				{Name: "nodePools", Label: "Node pools", Help: follows, Kind: adminv1.FieldFixed},
				{Name: "notBefore", Label: "Not before", Help: "The earliest start of the control plane, for example 2026-11-24T22:00:00Z. Empty means at once.", Optional: true},
				{Name: "acknowledge", Label: "Gates to acknowledge", Help: "Names of gates of the plan, separated by commas. They override a safeguard: an elevation of the class recover is needed.", Optional: true},
			},
			class: func(form url.Values) adminv1.AccessClass {
				if len(names(form, "acknowledge")) > 0 {
					return adminv1.ClassOf(adminv1.ActionUpgradeAcknowledge)
				}
				return adminv1.ClassOf(adminv1.ActionUpgradeStart)
			},
			body: upgradeBody},
		{Kind: kindRegion, Path: "apply-upgrade-policy", Name: adminv1.ActionUpgradePolicyApply, Title: "Create upgrade policy", Effect: effect, body: policyBody,
			Fields: append([]field{{Name: "name", Label: "Name", Help: "1 to 63 lower-case letters, digits and dashes."}}, policyFields...)},
		{Kind: kindPolicy, Path: "apply", Name: adminv1.ActionUpgradePolicyApply, Title: "Change upgrade policy", Effect: effect, Fields: policyFields, body: policyBody},
	}
}

// upgradeBody returns the body of the request that starts an upgrade.
func upgradeBody(_ object, form url.Values) (any, error) {
	version, err := required(form, "version")
	if err != nil {
		return nil, err
	}
	follow, known := nodePoolFollows[form.Get("nodePools")]
	if !known {
		return nil, &fieldError{"nodePools", "Must be none, unpinned or all."}
	}
	start := &clusterservicev1.StartUpgradeRequest{Version: version, NodePools: follow, Acknowledge: names(form, "acknowledge")}
	if start.NotBefore, err = timestamp(form, "notBefore"); err != nil {
		return nil, err
	}
	return start, nil
}

// policyBody returns the body of the request that creates or replaces an upgrade policy.
func policyBody(_ object, form url.Values) (any, error) {
	follow, known := nodePoolFollows[form.Get("nodePools")]
	if !known {
		return nil, &fieldError{"nodePools", "Must be none, unpinned or all."}
	}
	most, err := requiredNumber(form, "maxConcurrent", 0, 1000)
	if err != nil {
		return nil, err
	}
	spec := &clusterservicev1.UpgradePolicySpec{ClusterUid: text(form, "cluster"), ChannelGroups: names(form, "channelGroups"), MinorVersions: names(form, "minorVersions"),
		ProvisionShards: names(form, "provisionShards"), MaxConcurrent: most, NodePools: follow, Paused: checked(form, "paused")}
	if spec.Schedule, err = schedule(form); err != nil {
		return nil, err
	}
	return &clusterservicev1.ApplyUpgradePolicyRequest{Spec: spec}, nil
}

// minWindow and maxWindow are the limits of Cluster Service for the minutes of a maintenance window.
const minWindow, maxWindow = 15, 7 * 24 * 60

// schedule returns the maintenance windows of a form; nil if there are none.
func schedule(form url.Values) (*clusterservicev1.UpgradeSchedule, error) {
	cron, minutes := text(form, "cron"), text(form, "cronMinutes")
	var windows []*clusterservicev1.WeeklyWindow
	for line := range strings.Lines(form.Get("weekly")) {
		parts := strings.Fields(line)
		if len(parts) == 0 {
			continue
		}
		wrong := &fieldError{"weekly", fmt.Sprintf("%q is not a window such as SAT,SUN 22:00 240.", strings.TrimSpace(line))}
		if len(parts) != 3 {
			return nil, wrong
		}
		length, err := requiredNumber(url.Values{"weekly": {parts[2]}}, "weekly", minWindow, maxWindow)
		if err != nil {
			return nil, wrong
		}
		windows = append(windows, &clusterservicev1.WeeklyWindow{Days: strings.Split(strings.ToUpper(parts[0]), ","), Start: parts[1], Minutes: length})
	}
	switch {
	case cron != "" && len(windows) > 0:
		return nil, &fieldError{"cron", "Enter either weekly windows or cron."}
	case cron == "" && minutes != "":
		return nil, &fieldError{"cron", "The minutes need a cron expression."}
	case cron != "":
		length, err := requiredNumber(form, "cronMinutes", minWindow, maxWindow)
		return &clusterservicev1.UpgradeSchedule{Cron: cron, CronMinutes: length}, err
	case len(windows) > 0:
		return &clusterservicev1.UpgradeSchedule{Weekly: windows}, nil
	}
	return nil, nil
}

// shardActions lists the actions on provision shards.
func shardActions() []action {
	noRoom, settings := adminv1.FindAction(adminv1.ActionShardDrain).Fields[0], adminv1.FindAction(adminv1.ActionShardRegister).Fields
	version := field{Name: "version", Kind: adminv1.FieldHidden}
	capacity := field{Name: "capacity", Label: "Capacity", Help: "The maximum number of clusters. A number below the current one moves no cluster.", Kind: adminv1.FieldNumber}
	cordon := func(cordoned bool) func(object, url.Values) (any, error) {
		return func(_ object, form url.Values) (any, error) {
			return updateShard(form, &clusterservicev1.UpdateProvisionShardRequest{Cordoned: proto.Bool(cordoned), AcceptNoRoom: checked(form, "acceptNoRoom")})
		}
	}
	return []action{
		{Kind: kindShard, Path: "cordon", Name: adminv1.ActionShardUpdate, Title: "Cordon", preview: previewDrain, Fields: []field{noRoom, version}, body: cordon(true),
			Effect: "No new cluster is placed on the shard. Its clusters stay and are reconciled. The plan shows whether other shards have room for them."},
		{Kind: kindShard, Path: "uncordon", Name: adminv1.ActionShardUpdate, Title: "Uncordon", Fields: []field{version}, body: cordon(false),
			Effect: "The shard accepts new clusters again, and a drain of it ends. Waiting clusters that it accepts are placed at once."},
		{Kind: kindShard, Path: "set", Name: adminv1.ActionShardUpdate, Title: "Change settings", Fields: slices.Concat([]field{capacity}, settings[1:], []field{version}), body: shardSettings,
			Effect: "The changed settings override the shards file, also after restarts. They decide about new clusters; no cluster is moved."},
		{Kind: kindShard, Path: "reset", Name: adminv1.ActionShardUpdate, Title: "Reset settings",
			Effect: "These settings are those of the shards file again. They decide about new clusters; no cluster is moved.",
			Fields: []field{{Name: "settings", Label: "Settings", Help: "Any of capacity, zones, size_classes, labels, separated by commas."}, version},
			body: func(_ object, form url.Values) (any, error) {
				if _, err := required(form, "settings"); err != nil {
					return nil, err
				}
				return updateShard(form, &clusterservicev1.UpdateProvisionShardRequest{UseConfigured: names(form, "settings")})
			}},
		{Kind: kindRegion, Path: "register-shard", Name: adminv1.ActionShardRegister, Title: "Register provision shard",
			Effect: "The management cluster is registered under this name, which must be that of its Maestro consumer. The shard is cordoned until an engineer uncordons it.",
			Fields: slices.Concat([]field{{Name: "name", Label: "Name", Help: "Lower-case letters, digits and hyphens, at most 63."}}, settings)},
	}
}

// updateShard returns the body of the request of a change of a shard. It is based on the version of the form, so that a change in the meantime is not undone.
func updateShard(form url.Values, update *clusterservicev1.UpdateProvisionShardRequest) (any, error) {
	if version := text(form, "version"); version != "" {
		if _, err := fmt.Sscan(version, &update.ExpectedVersion); err != nil {
			return nil, &fieldError{"version", "The version of the form is not a number. Load the page again."}
		}
	}
	return update, nil
}

// shardSettings returns the body of the request that changes the settings in which the form differs from the shard.
func shardSettings(o object, form url.Values) (any, error) {
	update := &clusterservicev1.UpdateProvisionShardRequest{}
	capacity, err := requiredNumber(form, "capacity", 0, adminv1.FindAction(adminv1.ActionShardRegister).Fields[0].Max)
	if err != nil {
		return nil, err
	}
	if capacity != o.Shard.GetCapacity() {
		update.Capacity = &capacity
	}
	if zones := names(form, "zones"); !slices.Equal(zones, o.Shard.GetZones()) {
		update.Zones = &clusterservicev1.Names{Values: zones}
	}
	if classes := names(form, "sizeClasses"); !slices.Equal(classes, o.Shard.GetSizeClasses()) {
		update.SizeClasses = &clusterservicev1.Names{Values: classes}
	}
	set, err := labels(form, "labels")
	if err != nil {
		return nil, err
	}
	if !maps.Equal(set, o.Shard.GetLabels()) {
		update.Labels = &clusterservicev1.Labels{Values: set}
	}
	if update.Capacity == nil && update.Zones == nil && update.SizeClasses == nil && update.Labels == nil {
		return nil, &fieldError{"capacity", "Nothing was changed."}
	}
	return updateShard(form, update)
}

// maxQuota is the limit of admin for the clusters of a subscription.
const maxQuota = 5000

// quotaActions lists the actions on the quotas of subscriptions.
func quotaActions() []action {
	return []action{
		{Kind: kindSubscription, Path: "set-quota", Name: adminv1.ActionQuotaSet, Title: "Set quota",
			Effect: "The subscription may have this number of clusters in the region. Existing clusters stay, also if it has more.",
			Fields: []field{{Name: "clusters", Label: "Clusters", Help: "0 to 5000. Empty resets it to the default of the region.", Kind: adminv1.FieldNumber, Optional: true}},
			body: func(_ object, form url.Values) (any, error) {
				clusters, err := number(form, "clusters", 0, maxQuota)
				quota := adminv1.SetQuotaRequest{UseDefault: clusters == nil}
				if clusters != nil {
					count := int(*clusters)
					quota.Clusters = &count
				}
				return quota, err
			}},
	}
}
