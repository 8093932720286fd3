// SPDX-License-Identifier: Apache-2.0
//
// The web page of gpushare-extender and of `kubectl inspect gpushare --serve`. It reads inspect?watch=true (docs/api.md) line by line
// into `nodes` and draws changes in the next animation frames. Names are untrusted text and
// are only ever set as textContent. Nodes far outside the viewport have no card elements.
'use strict';

(() => {
  const FRAME_MS = 10; // drawing time per frame
  const SILENCE_MS = 40000; // the server sends a line every 15 s at least
  const POLL_MS = 5000; // when the server has no free stream
  const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
  const HIDDEN_MS = 60000; // a hidden page closes the stream after this time
  const MANY_PODS = 24; // more pods on one card are drawn as one segment
  const ROWS = 200; // of pending pods
  const NEAR_PX = 900; // above and below the viewport
  const TALL = 40; // nodes that may start above that range and extend into it
  const $ = (id) => document.getElementById(id);

  const nodes = new Map(); // name -> record
  const order = []; // records in the list, in its order
  const dirty = new Set(); // records to draw
  let cluster = { pendingPods: [] };
  let clusterDirty = true;
  let synced = false; // the initial state is complete
  let terms = [];

  // -- text --

  const number = new Intl.NumberFormat('en');
  const collator = new Intl.Collator('en', { numeric: true });
  const before = (a, b) => collator.compare(a.name, b.name) || (a.name < b.name ? -1 : 1);
  const count = (n, one, many) => `${number.format(n)} ${n === 1 ? one : many}`;
  const mib = (n) => `${number.format(n)} MiB`;
  const UNITS = [[1024 * 1024 * 10, 1024 * 1024, 'TiB'], [1024, 1024, 'GiB'], [0, 1, 'MiB']];
  const unitFor = (n) => UNITS.find(([from]) => n >= from);
  const inUnit = (n, [, size]) => number.format(Math.round(n / size * 10) / 10);
  const amount = (n) => (n ? `${inUnit(n, unitFor(n))} ${unitFor(n)[2]}` : '0');
  const percent = (n, of) => (of ? Math.min(100, n / of * 100) : 0);

  const text = (element, value) => {
    if (element.textContent !== value)
      element.textContent = value;
  };
  const make = (tag, className, value) => {
    const element = document.createElement(tag);
    if (className)
      element.className = className;
    if (value !== undefined)
      element.textContent = value;
    return element;
  };
  const podName = (pod) => {
    const name = make('span');
    name.append(make('span', 'ns', `${pod.namespace || ''}/`), pod.name || '');
    return name;
  };

  // -- the data of a node --

  const OUT = { Unhealthy: 'unhealthy', Excluded: 'excluded', OtherPlugin: 'other plugin' };
  const OUT_WORDS = { Unhealthy: 'Unhealthy according to its Scv', Excluded: 'Excluded by a ConfigMap',
    OtherPlugin: 'Allocated by the plugin of nvidia.com/gpu' };
  const MODES = { memory: 'shared memory only', card: 'whole cards only' };

  const models = (devs) => {
    const found = new Map();
    for (const dev of devs)
      if (dev.model)
        found.set(dev.model, (found.get(dev.model) || 0) + 1);
    return [...found].map(([model, n]) => `${n} × ${model}`).join(', ');
  };

  const notesOf = (node) => {
    const notes = [];
    if (node.reason)
      notes.push(node.reason);
    if (node.unknownCard !== undefined)
      notes.push(`A ConfigMap excludes GPU${node.unknownCard}, which this node does not have`);
    if (node.unplaced) {
      const pods = node.unplaced.map((p) => `${p.namespace}/${p.name} (${mib(p.mib)})`).join(', ');
      notes.push(`${count(node.unplaced.length, 'pod', 'pods')} on cards that this node does not have: ${pods}`);
    }
    return notes;
  };

  // Precomputes what search, filters and totals need, once per change.
  const digest = (record) => {
    const { node } = record;
    const words = [node.name, node.schedulingDisabled ? 'cordoned' : ''];
    const seen = new Set();
    Object.assign(record, { total: 0, promised: 0, used: 0, measurable: 0, out: 0, free: 0, over: 0 });
    for (const dev of node.devs) {
      record.total += dev.totalMiB;
      record.promised += dev.promisedMiB;
      record.free += dev.freeMiB;
      record.out += dev.health !== 'Healthy';
      record.over += Boolean(dev.overcommitted);
      if (dev.usedMiB !== undefined) {
        record.used += dev.usedMiB;
        record.measurable += dev.totalMiB;
      }
      words.push(dev.model || '', dev.uuid || '');
      for (const pod of dev.pods) {
        words.push(`${pod.namespace}/${pod.name}`);
        seen.add(pod.uid || `${pod.namespace}/${pod.name}`);
      }
    }
    for (const pod of node.unplaced || [])
      words.push(`${pod.namespace}/${pod.name}`);
    record.words = words.join('\n').toLowerCase();
    record.pods = seen.size;
    record.bare = Boolean(node.noGPU) && !node.devs.length && !node.unplaced;
    record.notes = notesOf(node);
    record.problem = !record.bare && (record.notes.length > 0 || record.out > 0 || record.over > 0);
  };

  const FILTERS = {
    all: () => true,
    problem: (r) => r.problem,
    free: (r) => r.free > 0 && !r.node.schedulingDisabled,
    pods: (r) => r.pods > 0 || Boolean(r.node.unplaced),
  };
  const isWanted = (r) => !r.bare && FILTERS[$('which').value](r) && terms.every((t) => r.words.includes(t));
  const isHit = (dev) => terms.length > 0 && (dev.pods.some((pod) => {
    const name = `${pod.namespace}/${pod.name}`.toLowerCase();
    return terms.some((t) => name.includes(t));
  }) || terms.some((t) => dev.uuid && dev.uuid.toLowerCase().includes(t)));

  // -- a card --

  // What a pod was promised, or has reserved, on the card.
  const shareOf = (pod) => `${mib(pod.mib)}${pod.wholeCard ? ', whole card' : ''}${pod.computePercent === undefined
    ? '' : `, ${pod.computePercent} % of the compute`}`;
  const usedOf = (pod) => `${mib(pod.usedMiB)} used${pod.utilizationPercent === undefined
    ? '' : `, ${pod.utilizationPercent} % of the SMs`}`;

  const describe = (dev, node, title) => {
    const all = document.createDocumentFragment();
    if (title)
      all.append(make('p', 'title', title));
    const pods = make('ul', 'pods');
    for (const pod of dev.pods) {
      const item = make('li');
      item.append(podName(pod), make('span', '', shareOf(pod)));
      if (pod.usedMiB !== undefined)
        item.append(make('span', pod.usedMiB > pod.mib ? 'bad' : '', usedOf(pod)));
      if (pod.enforcedBy)
        item.append(make('span', '', `enforced by ${pod.enforcedBy.join(', ') || 'nobody'}`));
      pods.append(item);
    }
    if (!dev.pods.length)
      pods.append(make('li', 'none', 'No promises on this card'));
    const facts = make('dl', 'facts');
    const fact = (name, value, bad) => facts.append(make('dt', '', name), make('dd', bad ? 'bad' : '', value));
    fact('Promised', mib(dev.promisedMiB), dev.overcommitted);
    if (dev.overcommitted)
      fact('Overcommitted', `more ${dev.promisedComputePercent > 100 && dev.promisedMiB <= dev.totalMiB ? 'compute' : 'memory'} is promised than the card has`, true);
    if (dev.promisedComputePercent)
      fact('Compute promised', `${dev.promisedComputePercent} %`);
    fact('Measured', dev.usedMiB === undefined ? 'unknown' : mib(dev.usedMiB));
    const overuse = dev.overuseMiB || 0;
    if (dev.withheldMiB > overuse)
      fact('External use', mib(dev.withheldMiB - overuse));
    if (overuse)
      fact('Overuse', mib(overuse), true);
    for (const pod of dev.reservations || [])
      fact('Reserved', `${shareOf(pod)} for ${pod.namespace}/${pod.name}`);
    if (dev.reservedComputePercent)
      fact('Compute reserved', `${dev.reservedComputePercent} %`);
    fact(node.schedulingDisabled ? 'Free once uncordoned' : 'Free for new pods', mib(dev.freeMiB));
    fact('Size', mib(dev.totalMiB));
    if (dev.health !== 'Healthy')
      fact('State', OUT_WORDS[dev.health] || dev.health, true);
    if (dev.model)
      fact('Model', dev.model);
    if (dev.uuid)
      fact('UUID', dev.uuid);
    all.append(pods, facts);
    return all;
  };

  // The segments of the bar of promises: class and MiB.
  const piecesOf = (dev) => {
    const kind = dev.overcommitted ? 'pod over' : 'pod promised';
    let pieces = dev.pods.map((pod) => [kind, pod.mib]);
    const sum = pieces.reduce((n, piece) => n + piece[1], 0);
    if (pieces.length > MANY_PODS || sum !== dev.promisedMiB || sum > dev.totalMiB)
      pieces = dev.promisedMiB ? [[kind, dev.promisedMiB]] : [];
    if (dev.withheldMiB)
      pieces.push(['outside', dev.withheldMiB]);
    if (dev.reservedMiB)
      pieces.push(['reserved', dev.reservedMiB]);
    return pieces;
  };

  const drawBar = (track, dev) => {
    const pieces = piecesOf(dev);
    while (track.children.length > pieces.length)
      track.lastElementChild.remove();
    pieces.forEach(([kind, n], i) => {
      const piece = track.children[i] || track.appendChild(make('i'));
      if (piece.className !== kind)
        piece.className = kind;
      piece.style.width = `${percent(n, dev.totalMiB)}%`;
    });
  };

  const newRow = (record, id) => {
    const item = $('card-template').content.firstElementChild.cloneNode(true);
    const [button, detail] = item.children;
    const row = { item, button, detail, gpu: button.children[0], promised: button.children[1].children[0],
      used: button.children[1].children[1].firstElementChild, pair: button.children[2].children[0],
      also: button.children[2].children[2], unseen: button.children[3] };
    detail.id = `d${record.no}-${id}`;
    button.setAttribute('aria-controls', detail.id);
    button.record = record;
    button.card = id;
    record.rows.set(id, row);
    return row;
  };

  const drawRow = (record, row, dev) => {
    const unit = unitFor(dev.totalMiB);
    const measured = dev.usedMiB !== undefined;
    const open = record.open.has(dev.id);
    text(row.gpu, `GPU ${dev.id}`);
    text(row.pair, `${inUnit(dev.promisedMiB, unit)} / ${inUnit(dev.totalMiB, unit)} ${unit[2]}`);
    text(row.also, OUT[dev.health] || (dev.health !== 'Healthy' ? dev.health
      : dev.overcommitted ? 'overcommitted'
        : measured ? `${inUnit(dev.usedMiB, unit)} measured` : 'not measured'));
    text(row.unseen, `, ${count(dev.pods.length, 'pod', 'pods')}`);
    drawBar(row.promised, dev);
    row.used.style.width = `${percent(dev.usedMiB || 0, dev.totalMiB)}%`;
    row.item.className = `card${OUT[dev.health] ? ' is-out' : ''}${dev.overcommitted ? ' is-over' : ''}${isHit(dev) ? ' hit' : ''}`;
    row.button.setAttribute('aria-expanded', String(open));
    row.detail.hidden = !open;
    if (open)
      row.detail.replaceChildren(describe(dev, record.node));
    else if (row.detail.firstChild)
      row.detail.replaceChildren();
  };

  // -- what connects the cards of a node: the matrix of nvidia-smi topo -m --

  const WORD = /^(?:(NV)[1-9]\d{0,2}|PIX|PXB|PHB|NODE|SYS)$/;
  const head = (scope, value) => {
    const cell = make('th', '', value);
    cell.scope = scope;
    return cell;
  };
  const matrix = ({ name, devs }) => {
    const table = make('table');
    const caption = table.createCaption();
    const top = table.createTHead().insertRow();
    const body = table.createTBody();
    caption.append(make('span', 'unseen', `Connections of the cards of ${name}. `),
      'NV and a number: NVLinks. PIX, PXB, PHB, NODE, SYS: PCIe, from near to far.');
    top.append(make('td'), ...devs.map((dev) => head('col', `GPU${dev.id}`)), head('col', 'NUMA'));
    devs.forEach((dev, i) => {
      const words = (dev.links || '').split(' ');
      const row = body.insertRow();
      row.append(head('row', `GPU${dev.id}`), ...devs.map((other, k) => {
        const known = WORD.exec(words[k]);
        return i === k ? make('td', '', 'X') : known ? make('td', known[1] || known[0], known[0]) : make('td', 'unknown', '?');
      }), make('td', '', dev.numaNode === undefined ? '–' : String(dev.numaNode)));
    });
    return table;
  };

  // Only a change replaces the matrix, so that focus and scroll position stay.
  const drawLinks = (record) => {
    const { links, node } = record;
    const key = links.open ? node.devs.map((dev) => `${dev.id} ${dev.numaNode} ${dev.links}`).join('\n') : '';
    links.hidden = !node.devs.some((dev) => dev.links);
    if (key === record.linksShown)
      return;
    record.linksShown = key;
    while (links.children.length > 1)
      links.lastElementChild.remove();
    if (!key)
      return;
    const box = links.appendChild(make('div'));
    box.tabIndex = 0; // the keyboard scrolls it
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', 'Connections');
    box.append(matrix(node));
  };

  // -- a node --

  let numbers = 0;
  const newRecord = (name) => ({ name, no: numbers++, rows: new Map(), open: new Set(), near: false });

  const build = (record) => {
    const item = $('node-template').content.firstElementChild.cloneNode(true);
    const [line, kind, notes, cards, links] = item.children;
    Object.assign(record, { item, title: line.children[0], mark: line.children[1], sum: line.children[2], kind, notesList: notes, cards, links });
    item.record = record;
    record.title.textContent = record.name;
    record.title.id = `n${record.no}`;
    cards.setAttribute('aria-labelledby', record.title.id);
    links.addEventListener('toggle', () => drawLinks(record));
  };

  const drawCards = (record) => {
    const here = new Set();
    record.node.devs.forEach((dev, i) => {
      const row = record.rows.get(dev.id) || newRow(record, dev.id);
      here.add(dev.id);
      drawRow(record, row, dev);
      if (record.cards.children[i] !== row.item)
        record.cards.insertBefore(row.item, record.cards.children[i] || null);
    });
    for (const [id, row] of record.rows) {
      if (here.has(id))
        continue;
      row.item.remove();
      record.rows.delete(id);
      record.open.delete(id);
    }
  };

  const dropCards = (record) => {
    if (record.open.size || record.item.contains(document.activeElement))
      return;
    record.rows.clear();
    record.cards.replaceChildren();
  };

  const drawNode = (record) => {
    const { node } = record;
    const kind = [
        models(node.devs), MODES[node.mode],
        node.source === 'capacity' ? 'from the Node’s capacity, not measured' : '',
        node.isolation ? `can enforce memory by ${node.isolation.join(', ') || 'nothing'}`
                       : '',
        node.claimedCards ? `${
                                count(node.claimedCards, 'card',
                                      'cards')} requested through nvidia.com/gpu`
                          : ''
    ];
    const unit = unitFor(record.total);
    record.sum.replaceChildren(make('b', '', inUnit(record.promised, unit)),
      ` of ${inUnit(record.total, unit)} ${unit[2]} promised`);
    text(record.kind, kind.filter(Boolean).join(' · '));
    record.mark.hidden = !node.schedulingDisabled;
    record.notesList.hidden = !record.notes.length;
    if (record.notes.join('\n') !== record.notesShown) {
      record.notesShown = record.notes.join('\n');
      record.notesList.replaceChildren(...record.notes.map((note) => make('li', '', note)));
    }
    record.item.classList.toggle('problem', record.problem);
    record.item.style.setProperty('--cards', String(node.devs.length));
    drawLinks(record);
    if (record.near || record.open.size)
      drawCards(record);
    if (tip.record === record)
      drawTip();
  };

  // -- the list --

  const placeOf = (record) => {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(order[middle], record) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };

  // Creates the cards of nodes near the viewport and removes those of all others. Not with an
  // IntersectionObserver: with thousands of targets it costs more than the scrolling itself.
  let shown = []; // the records in the list that match the search
  const filled = new Set();
  let layoutFrame = 0;
  const nearby = () => {
    const box = (record) => record.item.getBoundingClientRect();
    const found = [];
    let low = 0;
    let high = shown.length;
    while (low < high) { // records in one row have the same top
      const middle = (low + high) >> 1;
      if (box(shown[middle]).top < -NEAR_PX)
        low = middle + 1;
      else
        high = middle;
    }
    for (let i = Math.max(0, low - TALL); i < low; i++)
      if (box(shown[i]).bottom >= -NEAR_PX)
        found.push(shown[i]);
    for (let i = low; i < shown.length && box(shown[i]).top <= innerHeight + NEAR_PX; i++)
      found.push(shown[i]);
    return new Set(found);
  };
  const layout = () => {
    layoutFrame = 0;
    const found = nearby();
    for (const record of filled) {
      if (found.has(record))
        continue;
      record.near = false;
      filled.delete(record);
      dropCards(record);
    }
    for (const record of found) {
      if (record.near)
        continue;
      record.near = true;
      filled.add(record);
      drawCards(record);
    }
  };
  const scheduleLayout = () => {
    if (!layoutFrame)
      layoutFrame = requestAnimationFrame(layout);
  };

  const insert = (record) => {
    const at = placeOf(record);
    build(record);
    $('nodes').insertBefore(record.item, at < order.length ? order[at].item : null);
    order.splice(at, 0, record);
    record.listed = true;
  };

  const removeItem = (record) => {
    if (!record.listed)
      return;
    filled.delete(record);
    record.item.remove();
    order.splice(order.indexOf(record), 1);
    record.listed = false;
    record.near = false;
    record.rows.clear();
    if (tip.record === record)
      hideTip();
  };

  const filter = (record) => {
    if (!record.listed)
      return;
    const hide = !isWanted(record);
    if (record.item.hidden !== hide)
      record.item.hidden = hide;
  };

  const drawOne = (record) => {
    if (record.gone || record.bare) {
      removeItem(record);
      return;
    }
    if (!record.listed)
      insert(record);
    drawNode(record);
    filter(record);
  };

  // -- above and below the list --

  const drawTotals = () => {
    if (!synced)
      return;
    const sum = { total: 0, promised: 0, used: 0, measurable: 0, cards: 0, out: 0, pods: 0, lost: 0 };
    for (const r of nodes.values()) {
      sum.total += r.total;
      sum.promised += r.promised;
      sum.used += r.used;
      sum.measurable += r.measurable;
      sum.cards += r.node.devs.length;
      sum.out += r.out;
      sum.pods += r.pods;
      sum.lost += (r.node.unplaced || []).length;
    }
    const share = (n, of) => `of ${amount(of)}${of ? ` (${Math.floor(n * 100 / of)} %)` : ''}`; // like kubectl inspect gpushare
    text($('promised'), amount(sum.promised));
    text($('promised-of'), share(sum.promised, sum.total));
    $('promised-bar').style.width = `${percent(sum.promised, sum.total)}%`;
    text($('measured'), sum.measurable ? amount(sum.used) : 'unknown');
    text($('measured-of'), sum.measurable ? share(sum.used, sum.measurable) : '');
    $('measured-bar').style.width = `${percent(sum.used, sum.measurable)}%`;
    text($('cards'), number.format(sum.cards));
    text($('cards-out'), sum.out ? `${number.format(sum.out)} unavailable` : '');
    text($('pods'), number.format(sum.pods));
    text($('pods-lost'), sum.lost ? `${number.format(sum.lost)} unplaced` : '');
    text($('pending-count'), number.format(cluster.pendingPods.length));
  };

  const reasonCell = (pod) => {
    const cell = make('td', pod.error ? 'wrong' : '');
    if (pod.error)
      cell.append(pod.error);
    else if (pod.held)
      cell.append('Its bind is held until enough members of its gang are here');
    else if (pod.quota)
      cell.append(pod.quota);
    else if (pod.fittingNodes)
      cell.append(`Fits on ${count(pod.fittingNodes, 'node', 'nodes')}, such as `, make('span', 'where', pod.closestNode),
        '; kube-scheduler has not placed it yet, see its events');
    else if (pod.closestNode)
      cell.append(pod.neverFits ? 'Fits on no node, even an empty one' : 'Fits on no node now',
        '. The closest is ', make('span', 'where', pod.closestNode), `: ${pod.reason}`);
    else
      cell.append(pod.reason || 'Not computed: too many different requests are pending');
    if (pod.gang)
      cell.append(`. ${pod.gang}`);
    return cell;
  };

  const drawPending = () => {
    const wanted = cluster.pendingPods.filter((pod) => {
      const words = `${pod.namespace}/${pod.name}`.toLowerCase();
      return terms.every((t) => words.includes(t));
    });
    const shown = wanted.length || !terms.length ? wanted : cluster.pendingPods;
    $('pending').hidden = !cluster.pendingPods.length;
    $('pending-rows').replaceChildren(...shown.slice(0, ROWS).map((pod) => {
      const row = make('tr');
      const name = make('td');
      name.append(podName(pod));
      row.append(name, make('td', '', pod.request || '–'), reasonCell(pod));
      row.setAttribute('role', 'row');
      for (const cell of row.cells)
        cell.setAttribute('role', 'cell');
      return row;
    }));
    $('pending-more').hidden = shown.length <= ROWS;
    text($('pending-more'), `and ${number.format(shown.length - ROWS)} more; use the search to find them`);
  };

  const drawBare = () => {
    const bare = [...nodes.values()].filter((r) => r.bare);
    $('bare').hidden = !bare.length;
    text($('bare-title'), `${count(bare.length, 'node', 'nodes')} without GPUs`);
    if (!$('bare').open)
      return;
    $('bare-nodes').replaceChildren(...bare.sort(before).map((r) => {
      const item = make('li', '', r.name);
      item.append(make('span', '', `: ${r.node.reason || 'no cards'}`));
      return item;
    }));
  };

  const drawEmpty = (n) => {
    const any = order.length > 0;
    $('empty').hidden = n > 0;
    if (n)
      return;
    $('clear').hidden = !any;
    if (any) {
      const query = $('search').value.trim();
      text($('empty-title'), query ? `Nothing matches “${query}”` : 'No node matches the filter');
      text($('empty-text'), query ? 'The search covers names of nodes and pods, models and UUIDs.' : '');
    } else if (synced) {
      text($('empty-title'), 'No nodes with GPUs');
      text($('empty-text'), 'Nodes appear here once scv-agent has published their cards, or they report aliyun.com/gpu-mem.');
    } else if (nodes.size) {
      text($('empty-title'), `Loading: ${count(nodes.size, 'node', 'nodes')} so far`);
      text($('empty-text'), '');
    }
  };

  const drawCount = () => {
    text($('count'), !synced ? '' : shown.length === order.length ? count(shown.length, 'node', 'nodes')
      : `${number.format(shown.length)} of ${count(order.length, 'node', 'nodes')}`);
    drawEmpty(shown.length);
  };

  const drawCluster = () => {
    drawPending();
    text($('holder'), cluster.observer ? 'Read from the API server with your own rights'
      : cluster.holder ? `Leader: ${cluster.holder}${cluster.leader ? ' (this replica)' : ''}` : '');
    drawBanner();
  };

  // -- drawing, a few records per frame --

  let frame = 0;
  let countTimer = 0;
  const draw = () => {
    frame = 0;
    const end = performance.now() + FRAME_MS;
    for (const record of dirty) {
      if (performance.now() > end)
        break;
      dirty.delete(record);
      drawOne(record);
    }
    shown = order.filter((record) => !record.item.hidden);
    scheduleLayout();
    if (dirty.size) {
      schedule();
      return;
    }
    if (clusterDirty) {
      clusterDirty = false;
      drawCluster();
    }
    drawTotals();
    drawBare();
    drawCount();
  };
  const schedule = () => {
    if (!frame)
      frame = document.hidden ? setTimeout(draw, 200) : requestAnimationFrame(draw);
  };

  // In order, so that the visible records are drawn first and each insert appends.
  const drawAll = () => {
    for (const record of [...nodes.values()].sort(before))
      dirty.add(record);
    schedule();
  };

  const search = () => {
    terms = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const record of order) {
      filter(record);
      if (record.near || record.open.size)
        drawCards(record);
    }
    shown = order.filter((record) => !record.item.hidden);
    scheduleLayout();
    clusterDirty = true;
    const at = new URL(location.href);
    if ($('search').value)
      at.searchParams.set('q', $('search').value);
    else
      at.searchParams.delete('q');
    history.replaceState(null, '', at);
    clearTimeout(countTimer);
    countTimer = setTimeout(schedule, 120);
  };

  // -- the tooltip: pods of the card at the pointer or the focus --

  const tip = { record: null, card: null, button: null, timer: 0 };
  const hideTip = () => {
    clearTimeout(tip.timer);
    if (tip.button)
      tip.button.removeAttribute('aria-describedby');
    Object.assign(tip, { record: null, card: null, button: null });
    $('tip').hidden = true;
  };
  const drawTip = () => {
    const dev = tip.record.node.devs.find((d) => d.id === tip.card);
    if (!dev || !tip.button.isConnected || tip.record.open.has(dev.id)) {
      hideTip();
      return;
    }
    const box = $('tip');
    box.replaceChildren(describe(dev, tip.record.node, `${tip.record.name} · GPU ${dev.id}`));
    box.hidden = false;
    const at = tip.button.getBoundingClientRect();
    const below = at.bottom + 4 + box.offsetHeight <= innerHeight;
    const top = below ? at.bottom + 4 : Math.max(8, at.top - 4 - box.offsetHeight);
    const left = Math.min(at.left + 56, innerWidth - box.offsetWidth - 8);
    box.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  };
  const showTip = (button) => {
    if (tip.button === button)
      return;
    hideTip();
    Object.assign(tip, { record: button.record, card: button.card, button });
    button.setAttribute('aria-describedby', 'tip');
    drawTip();
  };
  const buttonAt = (target) => (target instanceof Element ? target.closest('.card button') : null);
  const leave = () => {
    clearTimeout(tip.timer);
    tip.timer = setTimeout(hideTip, 150); // long enough to move the pointer there
  };

  const watchTip = () => {
    document.addEventListener('pointerover', (event) => {
      const button = buttonAt(event.target);
      if (event.pointerType === 'touch')
        return;
      if (button) {
        clearTimeout(tip.timer);
        showTip(button);
      } else if ($('tip').contains(event.target)) {
        clearTimeout(tip.timer);
      } else if (tip.button && tip.button !== document.activeElement) {
        leave();
      }
    });
    document.addEventListener('focusin', (event) => {
      const button = buttonAt(event.target);
      if (button && button.matches(':focus-visible'))
        showTip(button);
      else
        hideTip();
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape')
        hideTip();
    });
    document.addEventListener('scroll', () => tip.button && drawTip(), { passive: true });
  };

  const onClick = (event) => {
    const button = buttonAt(event.target);
    if (!button)
      return;
    const { record, card } = button;
    if (!record.open.delete(card))
      record.open.add(card);
    hideTip();
    drawCards(record);
  };

  // The arrow keys move between cards.
  const onArrow = (event) => {
    const button = buttonAt(event.target);
    if (!button || (event.key !== 'ArrowDown' && event.key !== 'ArrowUp'))
      return;
    const all = [...$('nodes').querySelectorAll('li.node:not([hidden]) .card button')];
    const next = all[all.indexOf(button) + (event.key === 'ArrowDown' ? 1 : -1)];
    event.preventDefault();
    if (next)
      next.focus();
  };

  // -- the connection to the server --

  let stale = null; // time of the shown state, when not live
  let failure = ''; // why
  const STATES = { connecting: 'Connecting', live: 'Live', again: 'Reconnecting', lost: 'Disconnected',
    polling: `Every ${POLL_MS / 1000} s`, paused: 'Paused' };
  let link = 'connecting';
  const staleTime = () => new Date(cluster.staleSince).toLocaleTimeString();
  // The server can be reachable while what it knows of the cluster is old.
  const state = (name) => {
    link = name;
    const old = (name === 'live' || name === 'polling') && cluster.staleSince;
    $('live').dataset.state = old ? 'lost' : name;
    text($('live-text'), old ? `As of ${staleTime()}` : STATES[name]);
    document.body.classList.toggle('stale', name === 'lost' || Boolean(old));
  };
  const drawBanner = () => {
    let words = '';
    const server = cluster.observer ? '“kubectl inspect gpushare --serve”' : 'the extender';
    if (failure && stale)
      words = `No connection to ${server} (${failure}). Showing the state of ${stale.toLocaleTimeString()}.`;
    else if (failure)
      words = `The server does not answer: ${failure}.`;
    else if (cluster.error)
      words = `The extender rejects scheduling calls: ${cluster.error}.`;
    else if (cluster.staleSince)
      words = `Not up to date: ${cluster.staleReason}. Showing the state of ${staleTime()}.`;
    $('banner').hidden = !words;
    $('retry').hidden = !failure;
    text($('banner-text'), words);
  };

  const setNode = (node) => {
    let record = nodes.get(node.name);
    if (!record) {
      record = newRecord(node.name);
      nodes.set(node.name, record);
    }
    record.node = node;
    digest(record);
    if (synced)
      dirty.add(record);
  };
  const dropNode = (name) => {
    const record = nodes.get(name);
    if (!record)
      return;
    nodes.delete(name);
    record.gone = true;
    dirty.add(record);
  };
  // The initial state is complete: nodes that it does not name are deleted.
  const endSync = (names) => {
    for (const name of [...nodes.keys()])
      if (!names.has(name))
        dropNode(name);
    if (synced)
      return;
    synced = true;
    drawAll();
  };
  const setCluster = (members) => {
    cluster = { pendingPods: [], ...members };
    clusterDirty = true;
    state(link);
  };

  const takeLine = (line, sync) => {
    if (!line) {
      if (sync.names)
        endSync(sync.names);
      sync.names = null;
      return;
    }
    const update = JSON.parse(line);
    if (update.Cluster) {
      setCluster(update.Cluster);
    } else if (update.Type === 'DELETED') {
      dropNode(update.Node.name);
    } else if (update.Node) {
      setNode(update.Node);
      if (sync.names)
        sync.names.add(update.Node.name);
    }
  };

  const readStream = async (body, alive) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const sync = { names: new Set() };
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      alive();
      if (done)
        return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines)
        takeLine(line, sync);
      schedule();
      if (!sync.names && link !== 'live') {
        attempts = 0;
        stale = null;
        failure = '';
        clusterDirty = true;
        state('live');
      }
    }
  };

  // Fallback when no stream is free or the server is not ready: reads inspect once.
  const readOnce = async (why, signal) => {
    const answer = await fetch('inspect', { signal, cache: 'no-store' });
    if (!answer.ok)
      throw new Error(why);
    const { nodes: all, ...rest } = await answer.json();
    all.forEach(setNode);
    setCluster(rest);
    endSync(new Set(all.map((node) => node.name)));
    schedule();
    attempts = 0;
    stale = null;
    failure = '';
    state('polling');
  };

  let attempts = 0;
  let control = null; // aborts the stream
  let wake = () => {}; // ends the wait before a retry
  let visible = true;

  const follow = async () => {
    control = new AbortController();
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => control.abort(new Error(`no data for ${SILENCE_MS / 1000} s`)), SILENCE_MS);
    };
    alive();
    try {
      const answer = await fetch('inspect?watch=true', { signal: control.signal, cache: 'no-store' });
      if (answer.ok) {
        await readStream(answer.body, alive);
        throw new Error('the stream ended');
      }
      const why = (await answer.json().catch(() => ({}))).error || `status ${answer.status}`;
      await readOnce(why, control.signal);
    } finally {
      clearTimeout(timer);
    }
  };

  const onLost = (error) => {
    if (!visible)
      return;
    attempts++;
    stale = synced ? stale || new Date() : null;
    if (attempts > 1 || !synced) {
      failure = error instanceof TypeError ? 'unreachable' : error.message;
      state('lost');
      if (!synced) {
        text($('empty-title'), 'No data yet');
        text($('empty-text'), 'The page retries automatically.');
      }
    } else {
      state('again');
    }
    clusterDirty = true;
    schedule();
  };

  const pauseMs = () => {
    if (link === 'polling')
      return POLL_MS;
    const ms = RETRY_MS[Math.min(attempts, RETRY_MS.length) - 1] || RETRY_MS[0];
    return ms * (0.75 + Math.random() / 2); // jitter, so that pages do not retry in step
  };

  const run = async () => {
    for (;;) {
      if (visible)
        await follow().catch(onLost);
      if (!visible)
        state('paused');
      await new Promise((resolve) => {
        wake = resolve;
        if (visible)
          setTimeout(resolve, pauseMs());
      });
    }
  };

  const watchVisibility = () => {
    let timer = 0;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(timer);
      if (document.hidden) {
        timer = setTimeout(() => {
          visible = false;
          control.abort();
        }, HIDDEN_MS);
      } else if (!visible) {
        visible = true;
        wake();
      }
    });
  };

  // -- start --

  $('search').value = new URL(location.href).searchParams.get('q') || '';
  $('search').addEventListener('input', search);
  $('which').addEventListener('change', search);
  $('clear').addEventListener('click', () => {
    $('search').value = '';
    $('which').value = 'all';
    search();
    $('search').focus();
  });
  $('retry').addEventListener('click', () => wake());
  $('bare').addEventListener('toggle', drawBare);
  addEventListener('scroll', scheduleLayout, { passive: true });
  addEventListener('resize', scheduleLayout);
  $('nodes').addEventListener('click', onClick);
  $('nodes').addEventListener('keydown', onArrow);
  watchTip();
  watchVisibility();
  search();
  run();
})();
