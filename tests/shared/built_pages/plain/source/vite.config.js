export default { base: "./", build: { modulePreload: { polyfill: false } } };
