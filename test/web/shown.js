// SPDX-License-Identifier: Apache-2.0
//
// Reads what the page shows from its elements, and computes from inspect what it should show.
'use strict';

// Runs in the page: reads each node of the list, in order. Scrolls to every node and opens every
// card.
async function readNodes() {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const read = (list, what) => [...list].map(what);
  const all = [];
  for (const item of document.querySelectorAll('#nodes > li')) {
    if (item.hidden)
      continue;
    item.scrollIntoView({ block: 'center' });
    const want = Number(item.style.getPropertyValue('--cards'));
    for (let i = 0; i < 600 && item.querySelectorAll('.card').length !== want; i++)
      await frame();
    for (const button of item.querySelectorAll('.card button[aria-expanded=false]'))
      button.click();
    const links = item.querySelector('.links');
    links.open = !links.hidden;
    for (let i = 0; i < 600 && Boolean(links.querySelector('table')) === links.hidden; i++)
      await frame();
    all.push({
      name: item.querySelector('h3').textContent,
      mark: read(item.querySelectorAll('.head .mark:not([hidden])'), (m) => m.textContent),
      sum: item.querySelector('.sum').textContent,
      kind: item.querySelector('.kind').textContent,
      notes: read(item.querySelectorAll('.notes:not([hidden]) li'), (n) => n.textContent),
      links: read(links.querySelectorAll('tr'), (row) => read(row.cells, (cell) => cell.textContent).join(' ').trim()),
      cards: read(item.querySelectorAll('.card'), (card) => {
        const facts = {};
        for (const term of card.querySelectorAll('.facts dt'))
          facts[term.textContent] = term.nextElementSibling.textContent;
        const [promised, used] = card.querySelectorAll('.track');
        const width = (piece) => Number.parseFloat(piece.style.width) || 0;
        return {
          gpu: card.querySelector('.gpu').textContent,
          pair: card.querySelector('.pair').textContent,
          also: card.querySelector('.also').textContent,
          said: card.querySelector('button > .unseen').textContent,
          pods: read(card.querySelectorAll('.pods li'), (p) => p.textContent),
          facts,
          bar: read(promised.querySelectorAll('.pod'), width).reduce((a, b) => a + b, 0),
          outside: read(promised.querySelectorAll('.outside'), width).reduce((a, b) => a + b, 0),
          thin: width(used.firstElementChild),
        };
      }),
    });
  }
  return all;
}

const mib = (n) => `${n.toLocaleString('en')} MiB`;
const plural = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;
function amount(n) {
  if (!n)
    return '0';
  const [size, unit] = n >= 10 * 2 ** 20 ? [2 ** 20, 'TiB'] : n >= 1024 ? [1024, 'GiB'] : [1, 'MiB'];
  return `${(Math.round(n / size * 10) / 10).toLocaleString('en')} ${unit}`;
}
const tenth = (n, total) => (total >= 1024 ? Math.round(n / 1024 * 10) / 10 : n).toLocaleString('en');
const share = (n, total) => (total ? Math.min(100, n / total * 100) : 0);

const STATES = { Unhealthy: ['unhealthy', 'Unhealthy according to its Scv'],
  Excluded: ['excluded', 'Excluded by a ConfigMap'], OtherPlugin: ['other plugin', 'Allocated by the plugin of nvidia.com/gpu'] };

const shareOf = (pod) => `${mib(pod.mib)}${pod.wholeCard ? ', whole card' : ''}${'computePercent' in pod
  ? `, ${pod.computePercent} % of the compute` : ''}`;
const usedOf = (pod) => ('usedMiB' in pod ? `${mib(pod.usedMiB)} used${'utilizationPercent' in pod
  ? `, ${pod.utilizationPercent} % of the SMs` : ''}` : '');

const heldOf = (pod) => ('enforcedBy' in pod ? `enforced by ${pod.enforcedBy.length ? pod.enforcedBy.join(', ') : 'nobody'}` : '');

function cardOf(dev, cordoned) {
  const facts = { Promised: mib(dev.promisedMiB),
    Measured: 'usedMiB' in dev ? mib(dev.usedMiB) : 'unknown' };
  if (dev.overcommitted)
    facts.Overcommitted = 'more memory is promised than the card has';
  if (dev.promisedComputePercent)
    facts['Compute promised'] = `${dev.promisedComputePercent} %`;
  if (dev.withheldMiB && dev.withheldMiB !== dev.overuseMiB)
    facts['External use'] = mib(dev.withheldMiB - (dev.overuseMiB || 0));
  if (dev.overuseMiB)
    facts.Overuse = mib(dev.overuseMiB);
  facts[cordoned ? 'Free once uncordoned' : 'Free for new pods'] = mib(dev.freeMiB);
  facts.Size = mib(dev.totalMiB);
  if (dev.health !== 'Healthy')
    facts.State = STATES[dev.health][1];
  if (dev.model)
    facts.Model = dev.model;
  if (dev.uuid)
    facts.UUID = dev.uuid;
  return {
    gpu: `GPU ${dev.id}`,
    pair: `${tenth(dev.promisedMiB, dev.totalMiB)} / ${tenth(dev.totalMiB, dev.totalMiB)} ${dev.totalMiB >= 1024 ? 'GiB' : 'MiB'}`,
    also: dev.health !== 'Healthy' ? STATES[dev.health][0] : dev.overcommitted ? 'overcommitted'
      : 'usedMiB' in dev ? `${tenth(dev.usedMiB, dev.totalMiB)} measured` : 'not measured',
    said: `, ${plural(dev.pods.length, 'pod')}`,
    pods: dev.pods.length ? dev.pods.map((p) => `${p.namespace}/${p.name}${shareOf(p)}${usedOf(p)}${heldOf(p)}`)
      : ['No promises on this card'],
    facts,
    bar: share(dev.promisedMiB, dev.totalMiB),
    outside: share(dev.withheldMiB || 0, dev.totalMiB),
    thin: share(dev.usedMiB || 0, dev.totalMiB),
  };
}

function kindOf(n) {
  const models = {};
  for (const dev of n.devs)
    if (dev.model)
      models[dev.model] = (models[dev.model] || 0) + 1;
  const words = [Object.entries(models).map(([m, k]) => `${k} × ${m}`).join(', ')];
  if (n.mode)
    words.push(n.mode === 'card' ? 'whole cards only' : 'shared memory only');
  if (n.source === 'capacity')
    words.push('from the Node’s capacity, not measured');
  if (n.claimedCards)
    words.push(`${plural(n.claimedCards, 'card')} requested through nvidia.com/gpu`);
  return words.filter(Boolean).join(' · ');
}

function notesOf(n) {
  const notes = n.reason ? [n.reason] : [];
  if ('unknownCard' in n)
    notes.push(`A ConfigMap excludes GPU${n.unknownCard}, which this node does not have`);
  if (n.unplaced)
    notes.push(`${plural(n.unplaced.length, 'pod')} on cards that this node does not have: ` +
      n.unplaced.map((p) => `${p.namespace}/${p.name} (${mib(p.mib)})`).join(', '));
  return notes;
}

function linksOf(n) {
  if (!n.devs.some((d) => d.links))
    return [];
  return [`${n.devs.map((d) => `GPU${d.id}`).join(' ')} NUMA`,
    ...n.devs.map((d) => `GPU${d.id} ${d.links} ${'numaNode' in d ? d.numaNode : '–'}`)];
}

const sum = (list, what) => list.reduce((n, x) => n + what(x), 0);
const isBare = (n) => Boolean(n.noGPU) && !n.devs.length && !n.unplaced;

function sumOf(promised, total) {
  const unit = amount(total).split(' ')[1] || 'MiB';
  const size = { TiB: 2 ** 20, GiB: 1024, MiB: 1 }[unit];
  return `${(Math.round(promised / size * 10) / 10).toLocaleString('en')} of ${total ? amount(total) : '0 MiB'} promised`;
}

// The expected result of readNodes.
function wanted(inspect) {
  return inspect.nodes.filter((n) => !isBare(n)).map((n) => ({
    name: n.name,
    mark: n.schedulingDisabled ? ['cordoned'] : [],
    sum: sumOf(sum(n.devs, (d) => d.promisedMiB), sum(n.devs, (d) => d.totalMiB)),
    kind: kindOf(n),
    notes: notesOf(n),
    links: linksOf(n),
    cards: n.devs.map((dev) => cardOf(dev, n.schedulingDisabled)),
  }));
}

// The expected rows of the pending pods: name, request, reason.
function pendingPods(inspect) {
  return inspect.pendingPods.map((p) => [`${p.namespace}/${p.name}`, p.request || '–', p.error ||
    (p.fittingNodes ? `Fits on ${plural(p.fittingNodes, 'node')}, such as ${p.closestNode}; kube-scheduler has not placed it yet, see its events`
      : `${p.neverFits ? 'Fits on no node, even an empty one' : 'Fits on no node now'}. ` +
        `The closest is ${p.closestNode}: ${p.reason}`)]);
}

function totals(inspect) {
  const devs = inspect.nodes.flatMap((n) => n.devs);
  const of = (n, total) => `of ${amount(total)} (${Math.floor(n * 100 / total)} %)`;
  const known = devs.filter((d) => 'usedMiB' in d);
  const promised = sum(devs, (d) => d.promisedMiB), total = sum(devs, (d) => d.totalMiB);
  const used = sum(known, (d) => d.usedMiB), measurable = sum(known, (d) => d.totalMiB);
  const out = devs.filter((d) => d.health !== 'Healthy').length;
  const lost = sum(inspect.nodes, (n) => (n.unplaced || []).length);
  return { promised: amount(promised), 'promised-of': of(promised, total),
    measured: amount(used), 'measured-of': of(used, measurable),
    cards: devs.length.toLocaleString('en'), 'cards-out': out ? `${out} unavailable` : '',
    pods: sum(inspect.nodes, (n) => new Set(n.devs.flatMap((d) => d.pods.map((p) => p.uid))).size).toLocaleString('en'),
    'pods-lost': lost ? `${lost} unplaced` : '', 'pending-count': String(inspect.pendingPods.length) };
}

module.exports = { readNodes, wanted, pendingPods, totals, isBare };
