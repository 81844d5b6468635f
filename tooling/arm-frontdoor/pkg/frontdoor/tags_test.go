package frontdoor

import (
	"net/http"
	"strings"
	"testing"
)

func TestTagsOfResourceGroupsHaveNoControlCharacters(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	path := "/subscriptions/" + subscription + "/resourcegroups/Group?api-version=2021-04-01"
	cases := map[string]struct {
		tags   map[string]string
		status int
		code   string
		names  string
	}{
		"valid":           {map[string]string{"team": "a b", "ä": "<%&>"}, http.StatusOK, "", ""},
		"NUL in name":     {map[string]string{"te\x00am": "a"}, http.StatusBadRequest, "InvalidTagNameCharacters", `"te\x00am"`},
		"reserved":        {map[string]string{"te?am": "a"}, http.StatusBadRequest, "InvalidTagNameCharacters", `"te?am"`},
		"NUL in value":    {map[string]string{"team": "a\x00"}, http.StatusBadRequest, "InvalidRequestContent", `"team"`},
		"new line, value": {map[string]string{"team": "a\n"}, http.StatusBadRequest, "InvalidRequestContent", `"team"`},
	}
	for name, c := range cases {
		for _, method := range []string{http.MethodPut, http.MethodPatch} {
			response, body := h.do(t, method, path, nil, map[string]any{"location": "westus3", "tags": c.tags})
			failure, _ := body["error"].(map[string]any)
			code, _ := failure["code"].(string)
			message, _ := failure["message"].(string)
			if response.StatusCode != c.status || code != c.code || !strings.Contains(message, c.names) {
				t.Errorf("%s, %s: %d %v", name, method, response.StatusCode, body)
			}
		}
	}
	if g, _ := h.directory.Subscriptions()[0].Group("group"); len(g.Tags) != 2 {
		t.Errorf("the group has the tags %v, want those of the valid request", g.Tags)
	}
}
