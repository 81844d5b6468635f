package hostedcluster

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

type (
	configRelease = configv1.Release
	updateHistory = configv1.UpdateHistory
)

// historyLimit is the maximum number of entries of a version history.
const historyLimit = 100

// decideVersions updates the two version histories. An entry of the control plane's history is complete when every
// component runs the version; an entry of the cluster version's history also needs nodes.
func decideVersions(status *hyperv1.HostedControlPlaneStatus, hc *hyperv1.HostedCluster, hcpImage string, o *observation) {
	now := metav1.NewTime(o.Now)
	desired := releaseOf(o.Installing)
	desired.Image = hcpImage // unchanged: consumers compare it with the spec

	if status.VersionStatus == nil {
		status.VersionStatus = &hyperv1.ClusterVersionStatus{}
	}
	version := status.VersionStatus
	version.Desired, version.ObservedGeneration = desired, hc.Generation
	if len(version.History) == 0 || version.History[0].Version != o.Installing.Version.String() {
		if len(version.History) > 0 && version.History[0].CompletionTime == nil {
			version.History[0].CompletionTime = &now
		}
		version.History = slices.Insert(version.History, 0, updateHistory{
			State: configv1.PartialUpdate, StartedTime: now, Version: o.Installing.Version.String(), Image: desired.Image,
		})
		version.History = version.History[:min(len(version.History), historyLimit)]
	}
	version.AvailableUpdates, version.ConditionalUpdates = nil, nil
	for _, update := range o.Updates {
		if len(update.Risks) > 0 {
			version.ConditionalUpdates = append(version.ConditionalUpdates, conditionalUpdate(update, version.History[0].StartedTime))
			continue
		}
		version.AvailableUpdates = append(version.AvailableUpdates, releaseOf(update.Release))
	}
	if head := &version.History[0]; head.State == configv1.PartialUpdate && o.Rollout.complete() && o.ReadyNodes > 0 {
		head.State, head.CompletionTime = configv1.CompletedUpdate, &now
	}
	//lint:ignore SA1019 consumers still read the deprecated fields
	status.Version, status.ReleaseImage = o.Installing.Version.String(), desired.Image
	//lint:ignore SA1019 as above
	status.LastReleaseImageTransitionTime = version.History[0].StartedTime.DeepCopy()

	if !o.Installing.ReportsControlPlaneVersion() {
		return
	}
	controlPlane := &status.ControlPlaneVersion
	controlPlane.Desired, controlPlane.ObservedGeneration = desired, hc.Generation
	if len(controlPlane.History) == 0 || controlPlane.History[0].Version != o.Installing.Version.String() {
		if len(controlPlane.History) > 0 && controlPlane.History[0].CompletionTime.IsZero() {
			controlPlane.History[0].CompletionTime = now // it remains Partial: it never finished
		}
		controlPlane.History = slices.Insert(controlPlane.History, 0, hyperv1.ControlPlaneUpdateHistory{
			State: configv1.PartialUpdate, StartedTime: now, Version: o.Installing.Version.String(), Image: desired.Image,
		})
		controlPlane.History = controlPlane.History[:min(len(controlPlane.History), historyLimit)]
	}
	if head := &controlPlane.History[0]; head.State == configv1.PartialUpdate && o.Rollout.complete() {
		head.State, head.CompletionTime = configv1.CompletedUpdate, now
	}
}

func releaseOf(r *release.Release) configRelease {
	return configRelease{Version: r.Version.String(), Image: r.Image, Channels: slices.Clone(r.Channels)}
}

// conditionalUpdate returns an update with risks. Rules are not evaluated: except for rules of type Always it is
// unknown whether they apply.
func conditionalUpdate(update release.Update, since metav1.Time) configv1.ConditionalUpdate {
	u := configv1.ConditionalUpdate{Release: releaseOf(update.Release)}
	recommended := metav1.Condition{Type: "Recommended", Status: metav1.ConditionUnknown, Reason: "EvaluationFailed", LastTransitionTime: since}
	for _, r := range update.Risks {
		risk := configv1.ConditionalUpdateRisk{URL: r.URL, Name: r.Name, Message: r.Message}
		for _, rule := range r.Rules {
			matching := configv1.ClusterCondition{Type: rule.Type}
			if rule.Type == "Always" {
				recommended.Status, recommended.Reason = metav1.ConditionFalse, r.Name
			} else {
				matching.PromQL = &configv1.PromQLClusterCondition{PromQL: rule.PromQL}
			}
			risk.MatchingRules = append(risk.MatchingRules, matching)
		}
		recommended.Message = strings.TrimSpace(recommended.Message + " " + r.Message + " " + r.URL)
		u.Risks = append(u.Risks, risk)
	}
	u.Conditions = []metav1.Condition{recommended}
	return u
}

func lastCompleted(history []updateHistory) string {
	for _, h := range history {
		if h.State == configv1.CompletedUpdate {
			return h.Version
		}
	}
	return ""
}
