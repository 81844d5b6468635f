package portal

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The kinds of objects, which begin the paths of the pages about them.
const (
	kindRegion       = ""
	kindCluster      = "clusters"
	kindUpgrade      = "upgrades"
	kindPolicy       = "upgrade-policies"
	kindShard        = "shards"
	kindARMOperation = "arm-operations"
	kindOrphan       = "orphans"
	kindAzureOrphan  = "azure-orphans"
	kindDrift        = "drift"
	kindSubscription = "subscriptions"
	kindEgressLink   = "egress-links"
)

// objectKind is a kind of objects on which engineers act.
type objectKind struct {
	// Path is one of the kinds.
	Path string
	// Section is the entry of the navigation, and List the page above that of an object.
	Section string
	List    crumb
	// read reads the object with an ID. Any identifier that admin accepts is one.
	read func(v *view, id string) (object, error)
}

// object is what the form of an action shows of its object.
type object struct {
	// ID is the ID in paths of the API, Name the name for people, and URL the page about the object; it may be empty.
	ID, Name, URL string
	// Detail identifies the object further, and State is its current state; both may be empty.
	Detail, State string
	// Cluster is the UID of the cluster to which an elevation for the action may be limited; empty if it must be for the region.
	Cluster string
	// Values are the current values of fields with these names.
	Values url.Values
	// Shard is the shard with its current settings; nil for other kinds.
	Shard *clusterservicev1.ProvisionShard
}

// objectKinds lists the kinds of objects on which engineers act.
func objectKinds() []objectKind {
	return []objectKind{
		{Path: kindRegion, Section: "/", read: func(v *view, _ string) (object, error) {
			return object{Name: v.portal.Region, URL: "/"}, nil
		}},
		{Path: kindCluster, Section: "/clusters", List: crumb{"Clusters", "/clusters"}, read: readCluster},
		{Path: kindUpgrade, Section: "/upgrades", List: crumb{"Upgrades", "/upgrades"}, read: readUpgrade},
		{Path: kindPolicy, Section: "/upgrades", List: crumb{"Upgrade policies", "/upgrade-policies"}, read: readPolicy},
		{Path: kindShard, Section: "/shards", List: crumb{"Provision shards", "/shards"}, read: readShard},
		{Path: kindARMOperation, Section: "/clusters", List: crumb{"Clusters", "/clusters"}, read: readARMOperation},
		{Path: kindOrphan, Section: "/drift", List: crumb{"Orphans", "/orphans"}, read: readOrphan},
		{Path: kindAzureOrphan, Section: "/drift", List: crumb{"Azure orphans", "/azure-orphans"}, read: readAzureOrphan},
		{Path: kindDrift, Section: "/drift", List: crumb{"Drift", "/drift"}, read: readDrift},
		{Path: kindSubscription, Section: "/clusters", List: crumb{"Clusters", "/clusters"}, read: readSubscription},
		{Path: kindEgressLink, Section: "/egress-links", List: crumb{"Egress links", "/egress-links"}, read: readEgressLink},
	}
}

func readCluster(v *view, id string) (object, error) {
	var cluster adminv1.Cluster
	err := v.api.get("/clusters/"+url.PathEscape(id), nil, &cluster)
	state := cluster.Verdict
	if state == "" {
		state = cluster.ProvisioningState
	}
	return object{ID: cluster.UID, Name: cluster.Name, URL: clusterURL(cluster.UID), Detail: cluster.ResourceID, State: state, Cluster: cluster.UID}, err
}

func readUpgrade(v *view, id string) (object, error) {
	var upgrade adminv1.FleetUpgrade
	if err := v.api.get("/upgrades/"+url.PathEscape(id), nil, &upgrade); err != nil {
		return object{}, err
	}
	u := upgrade.Of
	return object{ID: u.GetUid(), Name: "Upgrade to " + u.GetSpec().GetVersion(), URL: "/upgrades/" + url.PathEscape(u.GetUid()), State: words(u.GetStatus().GetState().String()),
		Detail: "from " + u.GetStatus().GetFromVersion() + ", cluster " + u.GetClusterUid()}, nil
}

func readPolicy(v *view, id string) (object, error) {
	var message adminv1.Message[*clusterservicev1.UpgradePolicy]
	if err := v.api.get("/upgrade-policies/"+url.PathEscape(id), nil, &message); err != nil {
		return object{}, err
	}
	policy, spec := message.Of, message.Of.GetSpec()
	values := url.Values{"name": {policy.GetName()}, "cluster": {spec.GetClusterUid()}, "channelGroups": {strings.Join(spec.GetChannelGroups(), ", ")},
		"minorVersions": {strings.Join(spec.GetMinorVersions(), ", ")}, "provisionShards": {strings.Join(spec.GetProvisionShards(), ", ")}, "nodePools": {followName(spec.GetNodePools())},
		"maxConcurrent": {strconv.Itoa(int(spec.GetMaxConcurrent()))}, "cron": {spec.GetSchedule().GetCron()}, "cronMinutes": {""}, "weekly": {""}, "paused": {""}}
	if spec.GetSchedule().GetCron() != "" {
		values.Set("cronMinutes", strconv.Itoa(int(spec.GetSchedule().GetCronMinutes())))
	}
	var windows []string
	for _, w := range spec.GetSchedule().GetWeekly() {
		windows = append(windows, fmt.Sprintf("%s %s %d", strings.Join(w.GetDays(), ","), w.GetStart(), w.GetMinutes()))
	}
	values.Set("weekly", strings.Join(windows, "\n"))
	if spec.GetPaused() {
		values.Set("paused", checkedOption)
	}
	return object{ID: policy.GetName(), Name: policy.GetName(), URL: "/upgrade-policies/" + url.PathEscape(policy.GetName()), State: policyState(policy), Values: values}, nil
}

func readShard(v *view, id string) (object, error) {
	var report adminv1.Message[*clusterservicev1.ProvisionShardReport]
	if err := v.api.get("/shards/"+url.PathEscape(id), nil, &report); err != nil {
		return object{}, err
	}
	shard := report.Of.GetProvisionShard()
	return object{ID: shard.GetName(), Name: shard.GetName(), URL: "/shards/" + url.PathEscape(shard.GetName()), State: words(shard.GetState().String()),
		Detail: fmt.Sprintf("%d of %d clusters", shard.GetClusters(), shard.GetCapacity()), Shard: shard,
		Values: url.Values{"capacity": {strconv.Itoa(int(shard.GetCapacity()))}, "zones": {strings.Join(shard.GetZones(), ", ")}, "sizeClasses": {strings.Join(shard.GetSizeClasses(), ", ")},
			"labels": {labelText(shard.GetLabels())}, "version": {strconv.FormatInt(shard.GetVersion(), 10)}}}, nil
}

func readARMOperation(v *view, id string) (object, error) {
	var operation adminv1.ARMOperation
	err := v.api.get("/arm-operations/"+url.PathEscape(id), nil, &operation)
	return object{ID: operation.OperationID, Name: operation.Request + " of " + lastSegment(operation.ResourceID), Detail: operation.ResourceID, State: string(operation.Status)}, err
}

func readOrphan(v *view, id string) (object, error) {
	var list adminv1.OrphanList
	if err := v.api.get("/orphans", nil, &list); err != nil {
		return object{}, err
	}
	for _, o := range list.Items {
		if o.ID == id {
			return object{ID: o.ID, Name: o.ID, URL: "/orphans", Detail: "on " + o.Consumer + ": " + strings.Join(o.Objects, ", ")}, nil
		}
	}
	return object{}, missing("The orphan is not in the list any more.")
}

func readAzureOrphan(v *view, id string) (object, error) {
	var list adminv1.AzureOrphanList
	if err := v.api.get("/azure-orphans", nil, &list); err != nil {
		return object{}, err
	}
	for _, o := range adminv1.Contents(list.Items) {
		if o.GetUid() == id {
			return object{ID: id, Name: lastSegment(o.GetAzureId()), URL: "/azure-orphans", Detail: o.GetKind() + " " + o.GetAzureId(), State: cmp.Or(o.GetProof(), "No proof that its cluster is deleted")}, nil
		}
	}
	return object{}, missing("The resource is not in the list any more.")
}

func readDrift(v *view, id string) (object, error) {
	var list adminv1.DriftList
	if err := v.api.get("/drift", nil, &list); err != nil {
		return object{}, err
	}
	for _, d := range list.Items {
		if d.UID == id {
			return object{ID: d.UID, Name: lastSegment(d.ResourceID), URL: "/drift", Detail: d.Kind + " " + d.ResourceID, State: words(d.Difference)}, nil
		}
	}
	if list.More {
		return object{}, missing("The difference is not among the first 1000. Use `hcpctl drift delete`.")
	}
	return object{}, missing("The difference is not in the list any more.")
}

func readSubscription(v *view, id string) (object, error) {
	var quota adminv1.Quota
	err := v.api.get("/subscriptions/"+url.PathEscape(id)+"/quota", nil, &quota)
	o := object{ID: quota.SubscriptionID, Name: "Subscription " + quota.SubscriptionID, Detail: fmt.Sprintf("%d clusters, the default quota of the region", quota.Used)}
	if quota.Clusters != nil {
		o.Detail, o.Values = fmt.Sprintf("%d clusters of a quota of %d", quota.Used, *quota.Clusters), url.Values{"clusters": {strconv.Itoa(*quota.Clusters)}}
	}
	return o, err
}

// missing returns the error of an object that does not exist.
func missing(message string) error {
	return &apiError{status: http.StatusNotFound, detail: adminv1.FailureDetail{Message: message}}
}

// labelText returns labels as name=value, in order.
func labelText(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}
