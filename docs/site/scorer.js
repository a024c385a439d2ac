// How search results are ranked: as by default, but pages about using undertow come before those about its making.
const making = /^(docs\/decisions\/|CHANGELOG|CONTRIBUTING|SECURITY|benchmarks\/)/;

var Scorer = {
  score: ([page, , , , score]) => (making.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
