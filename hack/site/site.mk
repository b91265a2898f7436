# The documentation site, built from the documents of the repository.

HUGO := bin/hugo
HTMLTEST := bin/htmltest

# Where the site is written, and the URL that it is for.
SITE ?= dist/site
SITE_URL ?= /

.PHONY: site
site: $(HUGO) $(HTMLTEST) ## Build the documentation site and check its links: dist/site.
	hack/site/build.sh '$(SITE)' '$(SITE_URL)'

# REQUIRE_BROWSER=1 fails if this machine has no Chromium and cannot install it. Pictures of pages are in bin/site/pictures.
.PHONY: test-site
test-site: $(HUGO) $(HTMLTEST) ## Look at every page of the site in Chromium, as wide as a desktop and a phone.
	@if reason=$$(hack/site/require-chromium.sh); then \
		hack/site/build.sh bin/site/test /operator/; \
		rm -rf bin/site/pictures && mkdir bin/site/pictures; \
		SITE=$(CURDIR)/bin/site/test go -C hack/docs test -tags browser -count=1 -v -run '^TestSite$$' -artifacts -outputdir $(CURDIR)/bin/site/pictures .; \
	elif [[ "$${REQUIRE_BROWSER:-}" == 1 ]]; then \
		echo "The test of the site is required and cannot run: $$reason" >&2; exit 1; \
	else \
		echo "Test of the site skipped: $$reason"; \
	fi

$(HUGO): hack/tools/site/go.mod hack/tools/site/go.sum
	go -C hack/tools/site build -o $(CURDIR)/$@ github.com/gohugoio/hugo

$(HTMLTEST): hack/tools/site/go.mod hack/tools/site/go.sum
	go -C hack/tools/site build -o $(CURDIR)/$@ github.com/wjdp/htmltest
