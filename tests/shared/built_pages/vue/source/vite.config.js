import vue from "@vitejs/plugin-vue";
export default { base: "./", plugins: [vue()], build: { modulePreload: { polyfill: false } } };
