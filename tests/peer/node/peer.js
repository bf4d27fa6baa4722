// A member of a group by the npm package `democracy`: prints its events as JSON lines, and executes the lines on its standard
// input ask. The first argument is where the package is, the second its options as JSON.
const Democracy = require(process.argv[2]);
const { multicast, ...options } = JSON.parse(process.argv[3]);
const tell = (event, data) => console.log(JSON.stringify({ event, data }));

const peer = new Democracy(options);
for (const event of ['added', 'removed', 'elected', 'resigned', 'leader', 'ciao', 'news', 'other']) {
  peer.on(event, (data) => tell(event, data === undefined ? null : { ...data, disconnected: undefined }));
}
peer.socket.once('listening', () => {
  if (multicast) {
    peer.socket.setMulticastInterface('127.0.0.1');
  }
  tell('listening', null);
});

// What others send to all: the package itself joins no group, and one socket cannot be bound to two addresses.
if (multicast) {
  const [group, port] = multicast.split(':');
  const ears = require('dgram').createSocket({ type: 'udp4', reuseAddr: true });
  ears.on('message', (message) => peer.processEvent(message));
  ears.bind(Number(port), group, () => ears.addMembership(group, '127.0.0.1'));
}

const verbs = {
  resign: () => peer.resign(),
  subscribe: (channel) => peer.subscribe(channel),
  publish: ([channel, data]) => peer.publish(channel, data),
  send: ([event, data]) => peer.send(event, data),
  look: () => tell('looked', {
    me: peer.isLeader(),
    leader: (peer.leader() || {}).id,
    leaders: Object.values(peer.nodes()).filter((node) => node.state === 'leader').map((node) => node.id),
    nodes: Object.values(peer.nodes()).filter((node) => node.state !== 'removed').map((node) => node.id).sort(),
  }),
};
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const [verb, argument] = JSON.parse(line);
  verbs[verb](argument);
}).on('close', () => process.exit());
