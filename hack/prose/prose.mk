# Words and sentences: the linter, its samples, and texts for reviewers.

##@ Words

VALE := bin/vale

$(VALE): hack/tools/prose/go.mod hack/tools/prose/go.sum
	go -C hack/tools/prose build -o $(CURDIR)/$@ github.com/vale-cli/vale/v3/cmd/vale

# The linter reads documents and command output, and the comments, texts and names of Go files. hack/prose extracts texts
# and names, manifests, and the comments of scripts, into bin/prose. The definitions repeat comments of api, and descriptions of
# Kubernetes' own types.
PROSE_DOCUMENTS := '*.md' 'testdata/cli/*.txt' ':!README.zh-CN.md' ':!hack/**/testdata/**' ':!hack/prose/sample.md'
PROSE_CODE := '*.go' ':!*/zz_generated*'
PROSE_OTHERS := Makefile Dockerfile .ci/run .golangci.yml '.github/*.yaml' '.github/*.yml' '*.mk' '*.sh' 'config/*.yaml' 'config/*.json' ':!config/crd/bases' ':!config/kustomize/component/schema.json'
prose-files = git ls-files --cached --others --exclude-standard --deduplicate --

.PHONY: verify-prose
verify-prose: $(VALE) ## Check the words of documents, messages, comments and names against styles/.
	@rm -rf bin/prose; $(prose-files) $(PROSE_CODE) $(PROSE_OTHERS) | go run ./hack/prose bin/prose
	@{ $(prose-files) $(PROSE_DOCUMENTS) $(PROSE_CODE); find bin/prose -name '*.txt'; } | xargs $(VALE) --output=line

# A check that accepts these lines finds nothing anywhere.
.PHONY: verify-prose-rules
verify-prose-rules: $(VALE)
	@for sample in hack/prose/testdata/rejected.*; do \
		diff <(grep -n . $$sample | cut -d: -f1) <($(VALE) --no-exit --output=line $$sample | cut -d: -f2 | sort -nu) || \
			{ echo "$$sample has lines that $(VALE) accepts" >&2; exit 1; }; \
	done

verify: verify-prose-rules verify-prose

# Another seed chooses other texts.
SEED ?= 1
# Of lines FILE:LINE:TEXT, chooses 60 with five words or more.
choose = LC_ALL=C sort | awk -v seed=$(SEED) 'BEGIN { srand(seed) } NF > 4 && !/:(SPDX-|[+])/ { print rand() "\t" $$0 }' | sort -g | sed -n 1,60p | cut -f 2- | \
	LC_ALL=C sort -t: -k1,1 -k2,2n | sed -E 's/^([^:]*:[0-9]+):/1. `\1`: /; s/ $$//'
# The sentences of documents that stand on one line, the texts of the code, and the comments of api, which describe fields.
sentences = { $(prose-files) $(PROSE_DOCUMENTS) | xargs grep -HnoP '(^|(?<=[.!?] ))[A-Z][^.!?|]+[.!?](?= |$$)'; \
	cd bin/prose; grep -rn . --include='*.go.strings.txt' --exclude='*_test.go.*' .; grep -rn . --include='*.comments' api; }
texts-of-code = sed -E 's|^\./||; s/^([^:]*\.go)\.(comments|strings\.txt):/\1:/; s/ [+](optional|required|kubebuilder|list|map).*//'

.PHONY: prose-sample
prose-sample: ## Choose 60 comments and 60 sentences for users at random (SEED=1) for review: hack/prose/sample.md.
	@rm -rf bin/prose; $(prose-files) $(PROSE_CODE) | go run ./hack/prose bin/prose
	@{ printf '# Sample of comments and sentences\n\nWritten by `make prose-sample SEED=%s`. Do not edit.\n\n## Comments\n\n' $(SEED); \
		(cd bin/prose; grep -rn . --include='*.comments' . | grep -v '^./api/') | $(texts-of-code) | $(choose); \
		printf '\n## Sentences for users\n\n'; ($(sentences)) | $(texts-of-code) | $(choose); } > hack/prose/sample.md
