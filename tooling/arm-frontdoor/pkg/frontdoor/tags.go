package frontdoor

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// reservedInTagNames are the characters that ARM does not allow in names of tags, besides control characters.
const reservedInTagNames = `<>%&\?/`

// checkTags returns the response to a request with a tag whose name or value has characters that are not allowed, or nil. The message
// names the first one in alphabetical order.
func checkTags(tags map[string]string) *response {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if strings.ContainsAny(name, reservedInTagNames) || strings.ContainsFunc(name, unicode.IsControl) {
			return newError(http.StatusBadRequest, "InvalidTagNameCharacters", "The tag name %s has reserved characters %s or control characters.", strconv.Quote(name), reservedInTagNames)
		}
		if strings.ContainsFunc(tags[name], unicode.IsControl) {
			return newError(http.StatusBadRequest, "InvalidRequestContent", "The value of the tag %s has control characters.", strconv.Quote(name))
		}
	}
	return nil
}
