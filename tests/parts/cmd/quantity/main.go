// quantity answers, one line a question, what Kubernetes' own library makes of a quantity. Texts arrive as hex, so that
// anything at all can be asked about.
//
//	parse|TEXT             -> text|nanos|canonical text|rounded to milli|format, or error|message
//	pair|LEFT|RIGHT|FACTOR -> sum|difference|product with FACTOR|comparison
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

var formats = map[resource.Format]string{
	resource.DecimalSI:       "DecimalSi",
	resource.BinarySI:        "BinarySi",
	resource.DecimalExponent: "DecimalExponent",
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		words := strings.Split(in.Text(), "|")
		switch words[0] {
		case "parse":
			fmt.Fprintln(out, parse(text(words[1])))
		case "pair":
			fmt.Fprintln(out, pair(text(words[1]), text(words[2]), words[3]))
		default:
			panic("unknown question " + words[0])
		}
	}
}

func parse(s string) string {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return "error|" + err.Error()
	}
	canonical := q.DeepCopy()
	canonical.Add(resource.Quantity{})
	rounded := q.DeepCopy()
	rounded.RoundUp(resource.Milli)
	return fmt.Sprintf("%s|%s|%s|%s|%s", q.String(), nanos(q), canonical.String(), rounded.String(), formats[q.Format])
}

func pair(left, right, factor string) string {
	a, b := resource.MustParse(left), resource.MustParse(right)
	sum, difference, product := a.DeepCopy(), a.DeepCopy(), a.DeepCopy()
	sum.Add(b)
	difference.Sub(b)
	times, err := strconv.ParseInt(factor, 10, 64)
	if err != nil {
		panic(err)
	}
	product.Mul(times)
	return fmt.Sprintf("%s|%s|%s|%d", sum.String(), difference.String(), product.String(), a.Cmp(b))
}

// The library rounds to nano when it parses, so the number is whole.
func nanos(q resource.Quantity) string {
	d := q.AsDec()
	shift := 9 - int64(d.Scale())
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(shift), nil)
	return new(big.Int).Mul(d.UnscaledBig(), power).String()
}

func text(encoded string) string {
	bytes, err := hex.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}
