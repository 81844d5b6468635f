package gather

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// removed takes the place of what was taken out.
const removed = "(removed)"

// lastApplied is where kubectl keeps a copy of an object, of a Secret's data too.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Clean takes the secrets out of a value as decoded from JSON: the data of Secrets, wherever one stands; what a field's
// name says is secret; and whatever cleanText finds in any text. It changes maps and lists in place.
func Clean(value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleanObject(v)
	case []any:
		for i := range v {
			v[i] = Clean(v[i])
		}
	case string:
		return cleanText(v)
	}
	return value
}

func cleanObject(object map[string]any) {
	if object["kind"] == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			if data, ok := object[field].(map[string]any); ok {
				for key, content := range data {
					data[key] = fmt.Sprintf("(removed: %d characters)", len(fmt.Sprint(content)))
				}
			}
		}
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields") // no secret, but most of the text
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, lastApplied)
		}
	}
	// Environment variables and the like name their value beside it.
	if name, ok := object["name"].(string); ok && secretName.MatchString(name) {
		if _, ok := object["value"].(string); ok {
			object["value"] = removed
		}
	}
	for key, content := range object {
		if text, ok := content.(string); ok && text != "" && secretName.MatchString(key) {
			object[key] = removed
			continue
		}
		object[key] = Clean(content)
	}
}

// secretName is a field whose text is secret. Fields that name a Secret, as `secretName` and `pullSecret: {name}`, are not.
var secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|client[-_]?secret|secret[-_]?key|private[-_]?key|signing[-_]?key|client-key-data|kubeconfig|\.?dockerconfigjson|\.?dockercfg|pull[-_]?secret|connection[-_]?string)$`)

// The secrets that are known by what they look like.
var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	jwt        = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	userInfo   = regexp.MustCompile(`://[^/\s:@"]*:[^@\s/"]+@`)
	// assigned is a secret's name with its value, as YAML, flags and JSON within text write it.
	assigned = regexp.MustCompile(`(?i)\b(password|passwd|passphrase|token|access_token|refresh_token|id_token|client[-_]?secret|client-key-data|private[-_]?key|sealedPrivateKey|\.dockerconfigjson|auth)\b(\\?["']?\s*[:=]\s*\\?["']?)([^\s"'\\,;{}\[\]]{6,})`)
	encoded  = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
	config   = regexp.MustCompile(`(?m)^\s*kind:\s*Config\s*$|"kind"\s*:\s*"Config"`)
)

// cleanText takes secrets out of text by what they look like: private keys, tokens, passwords in URLs and assignments,
// whole kubeconfigs; and text in base64 that holds any of them.
func cleanText(text string) string {
	if isKubeconfig(text) {
		return fmt.Sprintf("(removed: a kubeconfig of %d characters)", len(text))
	}
	text = privateKey.ReplaceAllString(text, "(removed: a private key)")
	text = jwt.ReplaceAllString(text, "(removed: a token)")
	text = bearer.ReplaceAllString(text, "$1 "+removed)
	text = userInfo.ReplaceAllString(text, "://"+removed+"@")
	text = assigned.ReplaceAllString(text, "$1$2"+removed)
	return encoded.ReplaceAllStringFunc(text, func(blob string) string {
		plain, ok := decode(blob)
		if !ok || !isKubeconfig(plain) && !privateKey.MatchString(plain) && !assigned.MatchString(plain) && !userInfo.MatchString(plain) {
			return blob
		}
		return fmt.Sprintf("(removed: %d encoded characters)", len(blob))
	})
}

func isKubeconfig(text string) bool {
	return config.MatchString(text) && strings.Contains(text, "clusters") && strings.Contains(text, "users")
}

// decode reads base64 of any of its alphabets.
func decode(blob string) (string, bool) {
	trimmed := strings.TrimRight(blob, "=")
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(trimmed, "-_") {
		encoding = base64.RawURLEncoding
	}
	plain, err := encoding.DecodeString(trimmed)
	return string(plain), err == nil
}

// plain turns any value into what JSON decodes to.
func plain(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var decoded any
	err = json.Unmarshal(data, &decoded)
	return decoded, err
}
