package portal

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// pageSize is the number of rows of a list.
const pageSize = "50"

// ages are the choices for the age of a concern.
var ages = []string{"5m", "15m", "1h", "6h", "24h"}

// clustersView is the content of the list of clusters.
type clustersView struct {
	// Query is what was searched for. All is true for the list of the whole fleet; otherwise the list has the clusters with concerns.
	Query string
	All   bool
	// Concern, Shard, Age, Phase and Version are the filters that apply. The others are the choices.
	Concern, Shard, Age, Phase, Version string
	Concerns, Shards, Ages, Phases      []string
	Items                               []adminv1.Cluster
	Problems                            []problem
	First, Next                         string
}

// clusterPhases are the choices for the phase of a cluster.
var clusterPhases = []string{"Pending", "Installing", "Ready", "Updating", "Deleting", "Failed"}

// clusters lists the clusters that match a search, those with concerns, or all. The filters and the pages are those of the API, so that the
// page does not depend on the number of clusters.
func (p *Portal) clusters(w http.ResponseWriter, v *view) {
	asked := v.request.URL.Query()
	body := clustersView{Query: strings.TrimSpace(asked.Get("q")), All: asked.Get("all") != "", Concern: asked.Get("concern"), Shard: asked.Get("shard"), Age: asked.Get("age"), Ages: ages,
		Phase: asked.Get("phase"), Phases: clusterPhases, Version: strings.TrimSpace(asked.Get("version"))}
	query := url.Values{"pageSize": {pageSize}}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	switch {
	case body.Query != "":
		query = url.Values{"q": {body.Query}}
	case body.All:
		set("shard", body.Shard)
		set("phase", body.Phase)
		set("version", body.Version)
	default:
		query.Set("notReady", "true")
		set("concern", body.Concern)
		set("shard", body.Shard)
		set("version", body.Version)
		set("olderThan", body.Age)
	}
	if body.Query == "" {
		set("pageToken", asked.Get("pageToken"))
	}
	var list adminv1.ClusterList
	var region adminv1.RegionExplanation
	var shards adminv1.ShardList
	read := reader{view: v}
	read.get("Clusters", "/clusters", query, &list)
	if body.Query == "" {
		read.get("Provision shards", "/shards", nil, &shards)
		if !body.All {
			read.get("Concerns", "/explanation", nil, &region)
		}
	}
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	if body.Query != "" && len(list.Items) == 1 && len(body.Problems) == 0 {
		redirect(w, clusterURL(list.Items[0].UID))
		return
	}
	for _, s := range shards.Items {
		body.Shards = append(body.Shards, s.Of.GetName())
	}
	for _, c := range region.Concerns {
		if name := c.Layer + "/" + c.State; !slices.Contains(body.Concerns, name) {
			body.Concerns = append(body.Concerns, name)
		}
	}
	if body.Concern != "" && !slices.Contains(body.Concerns, body.Concern) {
		body.Concerns = append(body.Concerns, body.Concern)
	}
	slices.Sort(body.Concerns)
	body.Items = list.Items
	body.First, body.Next = pageLinks(v.request.URL, list.NextPageToken)
	v.render(w, http.StatusOK, "clusters", page{Title: "Clusters", Section: "/clusters", Body: body})
}

// pageLinks returns the URLs of the first and the next page of a list; empty if there is none.
func pageLinks(current *url.URL, next string) (first, following string) {
	query := current.Query()
	if query.Get("pageToken") != "" {
		query.Del("pageToken")
		first = current.Path + "?" + query.Encode()
	}
	if next != "" {
		query.Set("pageToken", next)
		following = current.Path + "?" + query.Encode()
	}
	return first, following
}

// clusterURL returns the path of the page of a cluster.
func clusterURL(uid string) string { return "/clusters/" + url.PathEscape(uid) }

// clusterTab is a page about a cluster.
type clusterTab struct {
	Title, URL string
	Current    bool
}

// clusterFrame is what the pages about a cluster share.
type clusterFrame struct {
	Cluster  adminv1.Cluster
	Tabs     []clusterTab
	Problems []problem
}

// frame returns the frame of a page about a cluster.
func frame(cluster adminv1.Cluster, current string) clusterFrame {
	f := clusterFrame{Cluster: cluster}
	for _, tab := range []struct{ title, path string }{
		{"Overview", ""}, {"Timeline", "/timeline"}, {"Operations", "/operations"}, {"Upgrades", "/upgrades"}, {"Works", "/works"}, {"Credentials", "/credentials"}, {"Deletion", "/deletion"}, {"Access", "/accesses"}, {"Audit records", "/access-records"},
	} {
		f.Tabs = append(f.Tabs, clusterTab{tab.title, clusterURL(cluster.UID) + tab.path, tab.path == current})
	}
	return f
}

// clusterPage returns the page of a tab. It has the name of the cluster; the breadcrumbs lead to the list.
func clusterPage(cluster adminv1.Cluster, title string, body any) page {
	content := page{Title: cluster.Name, Section: "/clusters", Body: body, Crumbs: []crumb{{"Clusters", "/clusters"}}}
	if title != "" {
		content.Title = title
		content.Crumbs = append(content.Crumbs, crumb{cluster.Name, clusterURL(cluster.UID)})
	}
	return content
}

// find reads the cluster of the path. Any identifier that matches one cluster leads to the page with its UID.
func (p *Portal) find(w http.ResponseWriter, v *view, tab string) (adminv1.Cluster, bool) {
	name := v.request.PathValue("cluster")
	var cluster adminv1.Cluster
	if err := v.api.get("/clusters/"+url.PathEscape(name), nil, &cluster); err != nil {
		p.fail(w, v.request, v, err)
		return cluster, false
	}
	if cluster.UID != "" && cluster.UID != name && v.request.Method == http.MethodGet {
		redirect(w, clusterURL(cluster.UID)+tab)
		return cluster, false
	}
	return cluster, true
}

// findPart reads the cluster of the path as find does, and a part of it into content: that which has the path of the tab in admin's API.
func (p *Portal) findPart(w http.ResponseWriter, v *view, tab string, query url.Values, content any) (adminv1.Cluster, bool) {
	cluster, found := p.find(w, v, tab)
	if !found {
		return cluster, false
	}
	if err := v.api.get("/clusters/"+url.PathEscape(cluster.UID)+tab, query, content); err != nil {
		p.fail(w, v.request, v, err)
		return cluster, false
	}
	return cluster, true
}

// clusterView is the content of the page of a cluster.
type clusterView struct {
	clusterFrame
	Explanation adminv1.Explanation
	Status      adminv1.ClusterStatus
	NodePools   []adminv1.NodePool
	Operations  []adminv1.ARMOperation
	Actions     []adminv1.Operation
	// Offers are the actions that the page offers.
	Offers []offer
}

// cluster shows a cluster: first what it waits for, then its layers, conditions and node pools, and what was done last.
func (p *Portal) cluster(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "")
	if !found {
		return
	}
	body := clusterView{clusterFrame: frame(cluster, "")}
	var pools adminv1.NodePoolList
	var operations adminv1.ARMOperationList
	var actions adminv1.OperationList
	path := "/clusters/" + url.PathEscape(cluster.UID)
	read := reader{view: v}
	read.get("Explanation", path+"/explanation", nil, &body.Explanation)
	read.get("Layers and conditions", path+"/status", nil, &body.Status)
	read.get("Node pools", path+"/node-pools", nil, &pools)
	read.get("Operations of the customer", path+"/arm-operations", nil, &operations)
	read.get("Actions", "/operations", url.Values{"cluster": {cluster.UID}, "pageSize": {"5"}}, &actions)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.NodePools, body.Operations, body.Actions = pools.Items, operations.Items[:min(len(operations.Items), 5)], actions.Items
	body.Offers = clusterOffers(cluster)
	content := clusterPage(cluster, "", body)
	content.Live = livePath + strings.TrimPrefix(clusterURL(cluster.UID), "/")
	v.render(w, http.StatusOK, "cluster", content)
}

// timelineView is the content of the timeline of a cluster.
type timelineView struct {
	clusterFrame
	Timeline adminv1.Timeline
	// Days is the length of the period; Choices are the others.
	Days    int
	Choices []int
}

// timeline shows what happened to a cluster, the newest first. Reading it is audited.
func (p *Portal) timeline(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "/timeline")
	if !found {
		return
	}
	body := timelineView{clusterFrame: frame(cluster, "/timeline"), Days: 1, Choices: []int{1, 3, 7, 14}}
	if days, err := strconv.Atoi(v.request.URL.Query().Get("days")); err == nil && slices.Contains(body.Choices, days) {
		body.Days = days
	}
	query := url.Values{"from": {v.now.Add(-time.Duration(body.Days) * 24 * time.Hour).Format(time.RFC3339)}}
	if err := v.api.get("/clusters/"+url.PathEscape(cluster.UID)+"/timeline", query, &body.Timeline); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	slices.Reverse(body.Timeline.Entries)
	for _, layer := range slices.Sorted(mapKeys(body.Timeline.Unavailable)) {
		body.Problems = append(body.Problems, problem{"The layer " + layer, body.Timeline.Unavailable[layer]})
	}
	v.render(w, http.StatusOK, "timeline", clusterPage(cluster, "Timeline", body))
}

// clusterOperationsView is the content of the operations of a cluster.
type clusterOperationsView struct {
	clusterFrame
	Operations []adminv1.ARMOperation
	Actions    []adminv1.Operation
}

// clusterOperations shows the operations of the customer and the actions of engineers.
func (p *Portal) clusterOperations(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "/operations")
	if !found {
		return
	}
	body := clusterOperationsView{clusterFrame: frame(cluster, "/operations")}
	var operations adminv1.ARMOperationList
	var actions adminv1.OperationList
	read := reader{view: v}
	read.get("Operations of the customer", "/clusters/"+url.PathEscape(cluster.UID)+"/arm-operations", nil, &operations)
	read.get("Actions", "/operations", url.Values{"cluster": {cluster.UID}, "pageSize": {pageSize}}, &actions)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Operations, body.Actions = operations.Items, actions.Items
	v.render(w, http.StatusOK, "cluster-operations", clusterPage(cluster, "Operations", body))
}

// credentialsView is the content of the credentials of a cluster.
type credentialsView struct {
	clusterFrame
	Credentials adminv1.CredentialList
}

// credentials shows the break-glass credentials of a cluster. Reading them is audited.
func (p *Portal) credentials(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "/credentials")
	if !found {
		return
	}
	body := credentialsView{clusterFrame: frame(cluster, "/credentials")}
	if err := v.api.get("/clusters/"+url.PathEscape(cluster.UID)+"/credentials", nil, &body.Credentials); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "credentials", clusterPage(cluster, "Credentials", body))
}

// deletionView is the content of the deletion of a cluster.
type deletionView struct {
	clusterFrame
	Deletion adminv1.ClusterDeletion
}

// deletion shows the steps of the deletion of a cluster or of its children.
func (p *Portal) deletion(w http.ResponseWriter, v *view) {
	cluster, found := p.find(w, v, "/deletion")
	if !found {
		return
	}
	body := deletionView{clusterFrame: frame(cluster, "/deletion")}
	err := v.api.get("/clusters/"+url.PathEscape(cluster.UID)+"/deletion", nil, &body.Deletion)
	if err != nil && !isStatus(err, http.StatusNotFound) {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "deletion", clusterPage(cluster, "Deletion", body))
}

// accessesView is the content of the accesses to a cluster.
type accessesView struct {
	clusterFrame
	Items       []adminv1.Access
	First, Next string
}

// accesses shows who had access to a cluster, why, and what was done.
func (p *Portal) accesses(w http.ResponseWriter, v *view) {
	var list adminv1.AccessList
	cluster, found := p.findPart(w, v, "/accesses", listQuery(v), &list)
	if !found {
		return
	}
	body := accessesView{clusterFrame: frame(cluster, "/accesses"), Items: list.Value}
	body.First, body.Next = pageLinks(v.request.URL, tokenOf(list.NextLink))
	v.render(w, http.StatusOK, "accesses", clusterPage(cluster, "Access", body))
}

// tokenOf returns the token of the next page in a link; empty if there is none.
func tokenOf(nextLink string) string {
	link, err := url.Parse(nextLink)
	if err != nil {
		return ""
	}
	return link.Query().Get("pageToken")
}

// accessRecordsView is the content of the access records of a cluster.
type accessRecordsView struct {
	clusterFrame
	Records     []adminv1.AccessRecord
	First, Next string
}

// accessRecords shows who did something with a cluster or read sensitive data of it.
func (p *Portal) accessRecords(w http.ResponseWriter, v *view) {
	var list adminv1.AccessRecordList
	cluster, found := p.findPart(w, v, "/access-records", listQuery(v), &list)
	if !found {
		return
	}
	body := accessRecordsView{clusterFrame: frame(cluster, "/access-records"), Records: list.Value}
	body.First, body.Next = pageLinks(v.request.URL, tokenOf(list.NextLink))
	v.render(w, http.StatusOK, "access-records", clusterPage(cluster, "Audit records", body))
}
