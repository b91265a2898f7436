// SPDX-License-Identifier: Apache-2.0

package admissiontest

import "regexp"

// mutations are changes of an expression, each of one occurrence.
var mutations = []struct {
	pattern *regexp.Regexp
	by      func(string) string
}{
	{regexp.MustCompile(`&&`), func(string) string { return "||" }},
	{regexp.MustCompile(`\|\|`), func(string) string { return "&&" }},
	{regexp.MustCompile(` == `), func(string) string { return " != " }},
	{regexp.MustCompile(` != `), func(string) string { return " == " }},
	{regexp.MustCompile(` [<>]=? `), func(s string) string {
		return map[string]string{" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}[s]
	}},
	{regexp.MustCompile(`\.exists\(`), func(string) string { return ".all(" }},
	{regexp.MustCompile(`\.all\(`), func(string) string { return ".exists(" }},
	{regexp.MustCompile(`!(\(|has|variables)`), func(s string) string { return s[1:] }},
	{regexp.MustCompile(`\b[0-9]+\b`), func(s string) string { return s + "1" }},
	{regexp.MustCompile(`'[A-Za-z./-]+'`), func(s string) string { return s[:len(s)-1] + "x'" }},
	{regexp.MustCompile(`\.max\(\)`), func(string) string { return ".min()" }},
}

// Mutants returns the expression with one operator or constant changed, in each possible way. Tests must tell a mutant from the expression.
func Mutants(expression string) []string {
	var mutants []string
	for _, mutation := range mutations {
		for _, place := range mutation.pattern.FindAllStringIndex(expression, -1) {
			mutants = append(mutants, expression[:place[0]]+mutation.by(expression[place[0]:place[1]])+expression[place[1]:])
		}
	}
	return mutants
}
