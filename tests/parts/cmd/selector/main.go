// selector answers, one line a question, what Kubernetes' own libraries make of a selector. Texts arrive as hex and
// leave as hex: messages may contain anything.
//
//	label|SELECTOR|LABELS       -> ok|normalised|does it match, or error|message; LABELS is a JSON object
//	object|SELECTOR|LABELS      -> the same for a LabelSelector object in JSON
//	problems|SELECTOR           -> ok|path: complaint, one a line
//	field|SELECTOR              -> ok|normalised, or error|message
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		words := strings.Split(in.Text(), "|")
		switch words[0] {
		case "label":
			selector, err := labels.Parse(text(words[1]))
			fmt.Fprintln(out, matched(selector, err, words[2]))
		case "object":
			selector, err := metav1.LabelSelectorAsSelector(object(words[1]))
			fmt.Fprintln(out, matched(selector, err, words[2]))
		case "problems":
			var lines []string
			for _, problem := range validation.ValidateLabelSelector(object(words[1]), validation.LabelSelectorValidationOptions{}, nil) {
				lines = append(lines, problem.Error())
			}
			sort.Strings(lines)
			fmt.Fprintln(out, "ok|"+encoded(strings.Join(lines, "\n")))
		case "field":
			selector, err := fields.ParseSelector(text(words[1]))
			if err != nil {
				fmt.Fprintln(out, "error|"+encoded(err.Error()))
			} else {
				fmt.Fprintln(out, "ok|"+encoded(selector.String()))
			}
		default:
			panic("unknown question " + words[0])
		}
	}
}

func matched(selector labels.Selector, err error, set string) string {
	if err != nil {
		return "error|" + encoded(err.Error())
	}
	found := map[string]string{}
	if err := json.Unmarshal([]byte(text(set)), &found); err != nil {
		panic(err)
	}
	return fmt.Sprintf("ok|%s|%t", encoded(selector.String()), selector.Matches(labels.Set(found)))
}

func object(word string) *metav1.LabelSelector {
	var selector *metav1.LabelSelector
	if err := json.Unmarshal([]byte(text(word)), &selector); err != nil {
		panic(err)
	}
	return selector
}

func encoded(s string) string { return hex.EncodeToString([]byte(s)) }

func text(word string) string {
	bytes, err := hex.DecodeString(word)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}
