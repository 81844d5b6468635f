package arm

import (
	"net/http"
	"strings"
)

// delete deletes a resource with all of its children, at once or by an operation.
func (c *call) delete(k *resourceType) (*response, error) {
	r, err := c.find(c.path.id)
	if err != nil {
		return nil, err
	}
	if r == nil {
		if k.name == groupType {
			return nil, groupNotFound(c.path)
		}
		if err := c.checkGroup(); err != nil {
			return nil, err
		}
		return &response{status: http.StatusNoContent}, nil
	}
	if r.Operation != "" {
		if !r.Deleting {
			return nil, inProgress(r)
		}
		return &response{status: http.StatusAccepted, header: c.pollHeaders(r, r.Operation, true)}, nil
	}
	if err := c.checkConditions(r); err != nil {
		return nil, err
	}
	if k.canDelete != nil {
		if err := k.canDelete(c, r); err != nil {
			return nil, err
		}
	}
	if k.longDelete && c.OperationDelay > 0 {
		if r.Properties == nil {
			r.Properties = map[string]any{}
		}
		r.Properties["provisioningState"], r.Deleting = "Deleting", true
		header, err := c.startOperation(r, true)
		if err != nil {
			return nil, err
		}
		return &response{status: http.StatusAccepted, header: header}, c.save(r)
	}
	return &response{status: http.StatusOK}, c.removeTree(r.ID)
}

// removeTree deletes a resource and all resources below it from the store.
func (c *call) removeTree(id string) error {
	lower := strings.ToLower(id)
	var keys []string
	err := c.tx.Scan(resources, lower, func(key string, _ func(any) error) error {
		if key == lower || strings.HasPrefix(key, lower+"/") {
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := c.tx.Delete(resources, key); err != nil {
			return err
		}
		if err := c.deleteStorage(key); err != nil {
			return err
		}
	}
	return nil
}
