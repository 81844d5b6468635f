package server

import (
	"net/http"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Routes returns all routes of the API. Their handlers are not usable; the routes describe the API.
func Routes() []Route { return (&Server{}).routes() }

func (s *Server) routes() []Route {
	return slices.Concat(s.readRoutes(), s.silenceRoutes(), s.elevationRoutes(), s.accessSessionRoutes(), s.actionRoutes())
}

// readRoute returns the route of a read.
func readRoute(r adminv1.Read, handle handler) Route {
	return Route{
		Method: http.MethodGet, Path: adminv1.Root + r.Path, Name: r.Name, Summary: r.Summary, Role: r.Role, Sensitive: r.Sensitive, Query: r.Query,
		Response: r.Response, ContentType: r.ContentType, Status: http.StatusOK, Timeout: r.Timeout, handle: handle,
	}
}

// readRoutes returns the routes of the reads.
func (s *Server) readRoutes() []Route {
	return []Route{
		readRoute(adminv1.ReadClusters.Read, s.listClusters),
		readRoute(adminv1.ReadCluster.Read, s.getCluster),
		readRoute(adminv1.ReadDump.Read, s.dumpCluster),
		readRoute(adminv1.ReadExplanation.Read, s.explainCluster),
		readRoute(adminv1.ReadTimeline.Read, s.showTimeline),
		readRoute(adminv1.ReadClusterActions.Read, s.listClusterActions),
		readRoute(adminv1.ReadClusterStatus.Read, s.showStatus),
		readRoute(adminv1.ReadJournal.Read, s.showJournal),
		readRoute(adminv1.ReadAccessRecords.Read, s.listAccessRecords),
		readRoute(adminv1.ReadAccesses.Read, s.listAccesses),
		readRoute(adminv1.ReadNodePools.Read, s.listNodePools),
		readRoute(adminv1.ReadNodePool.Read, s.getNodePool),
		readRoute(adminv1.ReadCredentials.Read, s.listCredentials),
		readRoute(adminv1.ReadCredential.Read, s.getCredential),
		readRoute(adminv1.ReadWorks.Read, s.listBundles),
		readRoute(adminv1.ReadARMOperations.Read, s.listARMOperations),
		readRoute(adminv1.ReadARMOperation.Read, s.getARMOperation),
		readRoute(adminv1.ReadDeletions.Read, s.listDeletions),
		readRoute(adminv1.ReadDeletion.Read, s.getDeletion),
		readRoute(adminv1.ReadLeftovers.Read, s.listLeftovers),
		readRoute(adminv1.ReadUpgrades.Read, s.listRegionUpgrades),
		readRoute(adminv1.ReadUpgrade.Read, s.getUpgrade),
		readRoute(adminv1.ReadClusterUpgrades.Read, s.listUpgrades),
		readRoute(adminv1.ReadUpgradePlan.Read, s.planUpgrade),
		readRoute(adminv1.ReadUpgradePolicies.Read, s.listUpgradePolicies),
		readRoute(adminv1.ReadUpgradePolicy.Read, s.getUpgradePolicy),
		readRoute(adminv1.ReadRegionExplanation.Read, s.explainRegion),
		readRoute(adminv1.ReadAlerts.Read, s.listAlerts),
		readRoute(adminv1.ReadShards.Read, s.listShards),
		readRoute(adminv1.ReadShard.Read, s.getShard),
		readRoute(adminv1.ReadDrainPlan.Read, s.planDrain),
		readRoute(adminv1.ReadPlacement.Read, s.explainPlacement),
		readRoute(adminv1.ReadOrphans.Read, s.listOrphans),
		readRoute(adminv1.ReadAzureOrphans.Read, s.listAzureOrphans),
		readRoute(adminv1.ReadDrift.Read, s.listDrift),
		readRoute(adminv1.ReadQuota.Read, s.getQuota),
		readRoute(adminv1.ReadEgressLinks.Read, s.listEgressLinks),
		readRoute(adminv1.ReadMe.Read, s.me),
		readRoute(adminv1.ReadAccessSessions.Read, s.listAccessSessions),
		readRoute(adminv1.ReadAccessSession.Read, s.getAccessSession),
		readRoute(adminv1.ReadRecordings.Read, s.listRecordings),
		readRoute(adminv1.ReadRecording.Read, s.getRecording),
		readRoute(adminv1.ReadRecordingContent, s.openRecording),
		readRoute(adminv1.ReadElevations.Read, s.listElevations),
		readRoute(adminv1.ReadElevation.Read, s.getElevation),
		readRoute(adminv1.ReadOperations.Read, s.listOperations),
		readRoute(adminv1.ReadOperation.Read, s.getOperation),
		readRoute(adminv1.ReadAudit.Read, s.listAudit),
	}
}

// actionRoutes returns a route for each action, which stores it as an admin operation.
func (s *Server) actionRoutes() []Route {
	var list []Route
	handlers := s.actionHandlers()
	for _, a := range adminv1.Actions() {
		handle := handlers[a.Name]
		switch {
		case a.Path == "":
			continue
		case handle == nil:
			handle = s.forwarded(a.Name, nil)
		}
		list = append(list, Route{
			Method: a.Method, Path: adminv1.Root + a.Path, Name: a.Name, Summary: a.Summary, Role: a.Class.Role(), Mutates: true, Request: a.Body,
			Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: handle,
		})
	}
	return list
}

// actionHandlers returns the handlers of the actions whose requests need more than forwarded does.
func (s *Server) actionHandlers() map[string]handler {
	return map[string]handler{
		adminv1.ActionClusterPause:                 s.pauseCluster,
		adminv1.ActionClusterSetSize:               s.setClusterSize,
		adminv1.ActionDeletionRelease:              s.forwarded(adminv1.ActionDeletionRelease, stepCheck(releaseRefusal)),
		adminv1.ActionDeletionForce:                s.forwarded(adminv1.ActionDeletionForce, stepCheck(deletion.ForceRefusal)),
		adminv1.ActionUpgradeStart:                 s.forwarded(adminv1.ActionUpgradeStart, s.checkAcknowledge),
		adminv1.ActionNodePoolScale:                s.scaleNodePool,
		adminv1.ActionCredentialRequest:            s.requestCredential,
		adminv1.ActionCredentialRevoke:             s.revokeCredentials,
		adminv1.ActionCredentialRevokeOne:          s.revokeCredential,
		adminv1.ActionAccessSessionRequest:         s.requestAccessSession,
		adminv1.ActionShardSessionRequest:          s.requestShardSession,
		adminv1.ActionServiceClusterSessionRequest: s.requestServiceClusterSession,
		adminv1.ActionARMOperationRetry:            s.onARMOperation,
		adminv1.ActionARMOperationCancel:           s.onARMOperation,
		adminv1.ActionOrphanDelete:                 s.deleteOrphan,
		adminv1.ActionDriftReconcile:               s.reconcileDrift,
		adminv1.ActionDriftDelete:                  s.deleteDrift,
		adminv1.ActionQuotaSet:                     s.setQuota,
		adminv1.ActionEgressLinkSet:                s.setEgressLink,
		adminv1.ActionEgressLinkDelete:             s.deleteEgressLink,
	}
}

// endsOwnAccess is the Route.WithoutClaims of the routes that end access.
const endsOwnAccess = "engineers can always end their own access; ending that of others requires the claims of break-glass"

// elevationRoutes returns the routes of elevations. The access policy decides who may use those of a second person.
func (s *Server) elevationRoutes() []Route {
	const elevations, one = adminv1.Root + "/elevations", adminv1.Root + "/elevations/{elevation}"
	transition := func(verb, summary string, body any, handle handler) Route {
		return Route{
			Method: http.MethodPost, Path: one + "/" + verb, Name: "elevations." + verb, Summary: summary, Role: adminv1.Operator,
			Request: body, Response: adminv1.Elevation{}, Status: http.StatusOK, handle: handle,
		}
	}
	return []Route{
		{
			Method: http.MethodPost, Path: elevations, Name: "elevations.create", Repeatable: true,
			Summary: "Request an elevation of the caller for a class of actions, for a limited time. It becomes active at once, or waits for the approval of a second person if the access policy requires one.",
			Role:    adminv1.Operator, Request: adminv1.ElevationRequest{}, Response: adminv1.Elevation{}, Status: http.StatusCreated, handle: s.createElevation,
		},
		transition("approve", "Approve the request of another engineer.", adminv1.DecisionRequest{}, s.decideElevation(true)),
		transition("deny", "Deny the request of another engineer.", adminv1.DecisionRequest{}, s.decideElevation(false)),
		transition("activate", "Activate the caller's approved elevation. Its duration begins.", nil, s.activateElevation),
		transition("review", "Review an emergency elevation of another engineer that is over.", adminv1.ReviewRequest{}, s.reviewElevation),
		{
			Method: http.MethodDelete, Path: one, Name: "elevations.end",
			Summary: "End an elevation at once and revoke its credentials, or withdraw a request: the caller's own, or any with the role break-glass.",
			Role:    adminv1.Operator, Response: adminv1.Elevation{}, Status: http.StatusOK, handle: s.endElevation,
			WithoutClaims: endsOwnAccess,
		},
	}
}

func (s *Server) accessSessionRoutes() []Route {
	return []Route{
		{
			Method: http.MethodDelete, Path: adminv1.Root + "/access-sessions/{session}", Name: "accessSessions.end",
			Summary: "End an access session: the gateway closes its connections and forgets its key. The caller's own, or any with the role break-glass. The end of its elevation ends it too.",
			Role:    adminv1.Operator, Response: adminv1.AccessSession{}, Status: http.StatusOK, handle: s.endAccessSession,
			WithoutClaims: endsOwnAccess,
		},
	}
}
