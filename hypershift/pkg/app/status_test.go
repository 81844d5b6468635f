package app

import (
	"errors"
	"fmt"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// available returns nil if the cluster is Available, with all fields that its consumers need.
func available(hc *hyperv1.HostedCluster) error {
	condition := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable))
	switch {
	case condition == nil:
		return errors.New("no Available condition")
	case condition.Status != metav1.ConditionTrue:
		problem := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationSucceeded))
		return fmt.Errorf("Available is %s: %s: %s (%+v)", condition.Status, condition.Reason, condition.Message, problem)
	case hc.Status.ControlPlaneEndpoint.Host == "" || hc.Status.ControlPlaneEndpoint.Port == 0:
		return errors.New("no control plane endpoint")
	case hc.Status.KubeConfig == nil:
		return errors.New("no kubeconfig")
	}
	return nil
}

// conditionIs returns a check for the status of a condition, and then the other checks.
func conditionIs(kind hyperv1.ConditionType, status metav1.ConditionStatus, others ...func(*hyperv1.HostedCluster) error) func(*hyperv1.HostedCluster) error {
	return func(hc *hyperv1.HostedCluster) error {
		if condition := meta.FindStatusCondition(hc.Status.Conditions, string(kind)); condition == nil || condition.Status != status {
			return fmt.Errorf("%s is %+v", kind, condition)
		}
		for _, check := range others {
			if err := check(hc); err != nil {
				return err
			}
		}
		return nil
	}
}

func poolReady(replicas int32) func(*hyperv1.NodePool) error {
	return func(pool *hyperv1.NodePool) error {
		if pool.Status.Replicas != replicas {
			return fmt.Errorf("%d of %d replicas: %+v", pool.Status.Replicas, replicas, pool.Status.Conditions)
		}
		for _, kind := range []string{hyperv1.NodePoolAllMachinesReadyConditionType, hyperv1.NodePoolAllNodesHealthyConditionType, hyperv1.NodePoolReadyConditionType} {
			if !poolCondition(pool, kind, "True") {
				return fmt.Errorf("%s is not True: %+v", kind, pool.Status.Conditions)
			}
		}
		for _, kind := range []string{hyperv1.NodePoolUpdatingVersionConditionType, hyperv1.NodePoolUpdatingConfigConditionType} {
			if !poolCondition(pool, kind, "False") {
				return fmt.Errorf("%s is not False: %+v", kind, pool.Status.Conditions)
			}
		}
		return nil
	}
}

func poolCondition(pool *hyperv1.NodePool, kind, status string) bool {
	for _, condition := range pool.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status) == status
		}
	}
	return false
}

func testNodesCompleteVersion(t *testing.T, m *managementCluster) {
	s := m.sample(t, "status")
	s.createPrerequisites(t)
	began := time.Now()
	s.apply(t, s.cluster)
	hc := s.waitCluster(t, available)
	t.Logf("Available after %s", time.Since(began))
	if hc.Status.Version.History[0].State != "Partial" {
		t.Errorf("version history without nodes: %+v", hc.Status.Version.History)
	}
	s.apply(t, s.pool)
	s.waitPool(t, poolReady(3))
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if hc.Status.Version.History[0].State != "Completed" {
			return fmt.Errorf("version history with nodes: %+v", hc.Status.Version.History)
		}
		return nil
	})
	s.delete(t)
}
